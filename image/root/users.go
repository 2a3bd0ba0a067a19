package root

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// user is a system user of the image. Numbers are fixed, since files on the
// data partition outlive the system that made them.
type user struct {
	name   string
	id     int // of the user and of its group
	group  string
	home   string
	shell  string
	what   string
	groups []string
}

const noLogin = "/usr/sbin/nologin"

// The daemon's user, that of commands, and the group that both share.
const (
	FarhandID  = 900
	OperatorID = 901
	WorkID     = 902
	OllamaID   = 903
)

func users() []user {
	return []user{
		{name: "farhand", id: FarhandID, home: "/data/farhand", what: "Farhand daemon",
			groups: []string{"work", "dialout", "plugdev", "lp", "input", "gpio", "i2c", "spi", "systemd-journal"}},
		{name: "operator", id: OperatorID, group: "work", home: "/data/work", shell: "/bin/bash", what: "Farhand commands"},
		{name: "ollama", id: OllamaID, home: "/data/ollama/home", what: "Local model"},
		{name: "messagebus", id: 990, home: "/nonexistent", what: "System message bus"},
		{name: "systemd-network", id: 991, home: "/", what: "systemd network management"},
		{name: "systemd-resolve", id: 992, home: "/", what: "systemd resolver"},
		{name: "systemd-timesync", id: 993, home: "/", what: "systemd time synchronisation"},
		{name: "sshd", id: 994, home: "/run/sshd", what: "sshd privilege separation"},
	}
}

// groups without a user of the same name.
func groups() map[string]int {
	return map[string]int{
		"work": WorkID, "gpio": 910, "i2c": 911, "spi": 912,
		"systemd-journal": 980, "input": 981, "netdev": 984, "kvm": 982, "render": 983, "sgx": 985, "clock": 986,
	}
}

// writeUsers writes the user database: Debian's fixed part, and ours. Nobody has
// a password.
func writeUsers(tree string, day int64) error {
	read := func(name string) ([]string, error) {
		b, err := os.ReadFile(filepath.Join(tree, "usr/share/base-passwd", name))
		return strings.Split(strings.TrimSpace(string(b)), "\n"), err
	}
	passwd, err := read("passwd.master")
	if err != nil {
		return err
	}
	group, err := read("group.master")
	if err != nil {
		return err
	}
	for i, line := range passwd {
		passwd[i] = strings.Replace(line, ":*:", ":x:", 1)
	}
	members := make(map[string][]string)
	ids := make(map[string]int)
	for name, id := range groups() {
		ids[name] = id
	}
	for _, u := range users() {
		gid := u.id
		if u.group != "" {
			gid = groups()[u.group]
		} else {
			ids[u.name] = u.id
		}
		shell := u.shell
		if shell == "" {
			shell = noLogin
		}
		passwd = append(passwd, fmt.Sprintf("%s:x:%d:%d:%s:%s:%s", u.name, u.id, gid, u.what, u.home, shell))
		for _, g := range u.groups {
			members[g] = append(members[g], u.name)
		}
	}
	for _, name := range sortedKeys(ids) {
		group = append(group, fmt.Sprintf("%s:x:%d:", name, ids[name]))
	}
	known := make(map[string]bool)
	for i, line := range group {
		name, _, _ := strings.Cut(line, ":")
		known[name] = true
		group[i] = strings.Replace(line, ":*:", ":x:", 1) + strings.Join(members[name], ",")
	}
	for name := range members {
		if !known[name] {
			return fmt.Errorf("users are in group %s, which there isn't", name)
		}
	}
	var shadow, gshadow []string
	for _, line := range passwd {
		name, _, _ := strings.Cut(line, ":")
		shadow = append(shadow, fmt.Sprintf("%s:*:%d:0:99999:7:::", name, day))
	}
	for _, line := range group {
		name, _, _ := strings.Cut(line, ":")
		gshadow = append(gshadow, name+":*::"+strings.Join(members[name], ","))
	}
	const shadowGroup = 42 // base-passwd's group.master
	for _, f := range []struct {
		name  string
		mode  os.FileMode
		gid   int
		lines []string
	}{
		{"passwd", 0o644, 0, passwd}, {"group", 0o644, 0, group},
		{"shadow", 0o640, shadowGroup, shadow}, {"gshadow", 0o640, shadowGroup, gshadow},
	} {
		at := filepath.Join(tree, "etc", f.name)
		if err := os.WriteFile(at, []byte(strings.Join(f.lines, "\n")+"\n"), f.mode); err != nil {
			return err
		}
		if err := os.Chmod(at, f.mode); err != nil {
			return err
		}
		if err := os.Chown(at, 0, f.gid); err != nil {
			return err
		}
	}
	return nil
}
