package rescue

import "fmt"

// NetworkFileName is where NetworkFile belongs, below a directory of
// systemd.network(5): before the file of the radio as a station.
const NetworkFileName = "15-farhand-rescue.network"

// NetworkFile has systemd-networkd give the radio its address as an access
// point, and addresses to those who join. They are told of a router, since an
// Android phone gives up on a network without one before it looks for the page;
// the machine forwards nothing.
func NetworkFile() string {
	return fmt.Sprintf(`# The rescue network, while there is one.
[Match]
Type=wlan
WLANInterfaceType=ap

[Link]
RequiredForOnline=no

[Network]
Address=%s
DHCPServer=yes
LinkLocalAddressing=no
IPv6AcceptRA=no
MulticastDNS=no
LLMNR=no

[DHCPServer]
PoolOffset=10
PoolSize=40
DefaultLeaseTimeSec=10min
MaxLeaseTimeSec=10min
EmitDNS=yes
DNS=%s
EmitRouter=yes
EmitNTP=no
EmitTimezone=no
PersistLeases=no
`, Prefix(), Address())
}
