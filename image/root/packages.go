package root

// Release is Debian's release that the user land comes from, and its suites.
const Release = "trixie"

// Suites are where packages come from. The kernel is of trixie-backports: that
// of trixie has neither the Pi 5's SD controller nor its RP1.
func Suites() []string {
	return []string{Release, Release + "-updates", Release + "-security", Release + "-backports"}
}

// Components of the archive; firmware is not free.
func Components() []string { return []string{"main", "non-free-firmware"} }

// userland is what the image needs, without what those depend on.
func userland() []string {
	return []string{
		// the base that everything takes for granted
		"base-files", "base-passwd", "bash", "coreutils", "dash", "diffutils", "findutils", "grep", "gzip", "hostname",
		"libc-bin", "login", "mawk", "mount", "ncurses-base", "netbase", "procps", "sed", "tar", "tzdata", "util-linux", "xz-utils",
		// the system
		"systemd", "udev", "dbus-broker", "systemd-resolved", "systemd-timesyncd", "systemd-userdbd", "libnss-systemd", "libpam-systemd", "kmod",
		// disks: the initramfs makes and checks the data partition with these
		"e2fsprogs", "dosfstools",
		// network
		"iproute2", "iputils-ping", "iwd", "wireless-regdb", "ca-certificates", "openssh-server",
		// what a person at a shell expects on a board
		"gpiod", "i2c-tools", "less", "nano", "sudo",
	}
}

// kernel are the packages of a kernel release. They are only unpacked.
func kernel(release string) []string {
	return []string{"linux-binary-" + release, "linux-base-" + release, "linux-modules-" + release}
}

// omitted says which packages are left out although others depend on them:
// what is needed by maintainer scripts alone, and what the image has no use for.
func omitted(name string) bool {
	switch name {
	case "perl", "perl-base", "perl-modules-5.40", "libperl5.40", "libtext-charwidth-perl", "libtext-wrapi18n-perl", "libgdbm6t64", "libgdbm-compat4t64",
		"debconf", "debconf-2.0", "ucf", "adduser", "init-system-helpers", "runit-helper", "lsb-base", "sensible-utils", "libdebconfclient0",
		"systemd-sysv", // its links are made here
		"linux-base", "initramfs-tools", "initramfs-tools-core",
		"openssl", "openssl-provider-legacy", "libcap2-bin", "libatomic1",
		"sysvinit-utils", "gcc-14-base":
		return true
	}
	return false
}
