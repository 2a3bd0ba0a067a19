package render

import "farhand/provision/rescue"

// networkDir is where systemd-networkd looks first below /etc.
const networkDir = "/run/systemd/network"

// network has every wired and wireless port ask for addresses. The client
// identifier is the hardware's, so that a cloned card gets an address of its own
// (field case 79), and the route by cable is preferred. Names are answered by
// multicast on each port for itself (field case 81).
func (r *Result) network() {
	const both = `
[Network]
DHCP=yes
MulticastDNS=yes
LLMNR=no

[DHCPv4]
ClientIdentifier=mac
`
	r.add(
		File{Path: networkDir + "/20-farhand-ethernet.network", Mode: 0o644, Data: []byte(
			"[Match]\nType=ether\nKind=!*\n\n[Link]\nRequiredForOnline=no\n" + both + "RouteMetric=100\n\n[IPv6AcceptRA]\nRouteMetric=100\n")},
		File{Path: networkDir + "/20-farhand-wifi.network", Mode: 0o644, Data: []byte(
			"[Match]\nType=wlan\nWLANInterfaceType=station\n\n[Link]\nRequiredForOnline=no\n" + both + "RouteMetric=600\n\n[IPv6AcceptRA]\nRouteMetric=600\n")},
		// The rescue network's, for as long as the radio is an access point.
		File{Path: networkDir + "/" + rescue.NetworkFileName, Mode: 0o644, Data: []byte(rescue.NetworkFile())},
	)
}
