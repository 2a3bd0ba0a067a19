// Package iwd makes a rescue network with iwd, the appliance's Wi-Fi daemon,
// over D-Bus (iwd's doc/*-api.txt: net.connman.iwd, versions 2 and later). While
// there is no rescue network iwd joins the networks of its configuration by
// itself, so there is nothing here that joins one.
//
// iwd would hand out addresses itself only if it configured those of stations
// too (its EnableNetworkConfiguration). systemd-networkd does both on the
// appliance, by rescue.NetworkFile.
package iwd
