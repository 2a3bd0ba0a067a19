package cli

import (
	"context"
	"errors"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"farhand/client"
	"farhand/provision/preseed"
	"farhand/wire"
)

// settingsFlags are what is to be different.
type settingsFlags struct {
	hostname, name, timezone, country string
	wifi, wifiPasswordFile            string
	wifiOpen, wifiHidden, rescue, ssh bool
	forgetWifi, sshKeys, removeKeys   []string
	noWait                            bool
}

func (a *app) settings() *cobra.Command {
	var f settingsFlags
	cmd := &cobra.Command{
		Use:   "settings [MACHINE]",
		Short: "Show and change the settings of an appliance",
		Long: `settings shows what an appliance goes by: its names, time zone, Wi-Fi networks and
who may log in by SSH. With flags it changes that, all of it or, if anything is wrong,
nothing. It takes your own login; no token will do. What the card alone decides (the
relay, roots, what is offered, commands as root) takes a new flash.

Changed Wi-Fi networks count for good once the machine has reached the relay with
them. If it doesn't within two minutes, it goes back to those of before. settings
waits for that, and gives 1 if they are back.`,
		Example: `  farhand settings pi
  farhand settings pi --hostname greenhouse --timezone Europe/Berlin
  farhand settings pi --wifi shed --wifi-password-file wifi.txt --country DE
  farhand settings pi --ssh --ssh-key ~/.ssh/id_ed25519.pub`,
		Args: between(0, 1, "at most one machine"),
		RunE: func(cmd *cobra.Command, args []string) error {
			change, err := a.settingsChange(cmd, f)
			if err != nil {
				return err
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			defer c.Close()
			machine, err := a.machine(cmd.Context(), c, first(args...))
			if err != nil {
				return err
			}
			return a.runSettings(cmd.Context(), c, machine, change, f.noWait)
		},
		ValidArgsFunction: a.completeMachine(""),
	}
	flags := cmd.Flags()
	flags.StringVar(&f.hostname, "hostname", "", `its name in the network ("": one that ends like its serial number)`)
	flags.StringVar(&f.name, "name", "", `the name that it calls itself ("": the host name)`)
	flags.StringVar(&f.timezone, "timezone", "", `its time `+"`ZONE`"+`, such as Europe/Berlin ("": UTC)`)
	flags.StringVar(&f.wifi, "wifi", "", "one more Wi-Fi network to join, by its `SSID`, or 0x and the bytes of that in hex; its password is asked for")
	flags.StringVar(&f.wifiPasswordFile, "wifi-password-file", "", "its password, the first line of `FILE` (- for standard input)")
	flags.BoolVar(&f.wifiOpen, "wifi-open", false, "it has no password")
	flags.BoolVar(&f.wifiHidden, "wifi-hidden", false, "it doesn't announce itself")
	flags.StringArrayVar(&f.forgetWifi, "forget-wifi", nil, "no longer join this network (`SSID`); may be repeated")
	flags.StringVar(&f.country, "country", "", `the country that it is in, two `+"`LETTERS`"+` ("": the radio stays off)`)
	flags.BoolVar(&f.rescue, "wifi-rescue", false, "keep the Wi-Fi of its own available; =false: only before the first pairing")
	flags.BoolVar(&f.ssh, "ssh", false, "let those with a key log in by SSH; =false: nobody")
	flags.StringArrayVar(&f.sshKeys, "ssh-key", nil, "one more public `KEY` that may log in, or those in a file; may be repeated")
	flags.StringArrayVar(&f.removeKeys, "remove-ssh-key", nil, "no longer let the key of this `FINGERPRINT` log in; may be repeated")
	flags.BoolVar(&f.noWait, "no-wait", false, "don't wait until the relay was reached with changed networks")
	cmd.MarkFlagsMutuallyExclusive("wifi-open", "wifi-password-file")
	return cmd
}

// settingsChange is what the flags change; nil if they change nothing.
func (a *app) settingsChange(cmd *cobra.Command, f settingsFlags) (*wire.SettingsChange, error) {
	given := cmd.Flags().Changed
	c := wire.SettingsChange{SSHRemove: f.removeKeys}
	for _, ssid := range f.forgetWifi {
		c.WifiRemove = append(c.WifiRemove, wireSSID(ssid))
	}
	for _, text := range []struct {
		flag string
		from *string
		to   **string
	}{
		{"hostname", &f.hostname, &c.Hostname}, {"name", &f.name, &c.Name},
		{"timezone", &f.timezone, &c.Timezone}, {"country", &f.country, &c.WifiCountry},
	} {
		if given(text.flag) {
			*text.to = text.from
		}
	}
	if given("wifi-rescue") {
		c.WifiRescue = &f.rescue
	}
	if given("ssh") {
		c.SSHEnabled = &f.ssh
	}
	var err error
	if c.SSHAdd, err = publicKeys(f.sshKeys); err != nil {
		return nil, err
	}
	switch {
	case f.wifi != "":
		password, err := a.wifiPassword(cmd.Context(), f.wifi, f.wifiPasswordFile, f.wifiOpen)
		if err != nil {
			return nil, err
		}
		c.WifiAdd = []wire.NewWifi{{SSID: wireSSID(f.wifi), Hidden: f.wifiHidden, Password: password}}
	case f.wifiPasswordFile != "" || f.wifiOpen || f.wifiHidden:
		return nil, usage("--wifi SSID names the network")
	}
	if len(c.Fields()) == 0 {
		return nil, nil
	}
	return &c, nil
}

// wireSSID is a network's name as it crosses the wire, where bytes that are no text
// would become others.
func wireSSID(given string) string {
	if utf8.ValidString(given) {
		return given
	}
	return preseed.SSIDText([]byte(given))
}

func (a *app) runSettings(ctx context.Context, c *client.Client, machine string, change *wire.SettingsChange, noWait bool) error {
	var (
		s   wire.Settings
		err error
	)
	if change == nil {
		s, err = c.Settings(ctx, machine)
	} else {
		s, err = c.ChangeSettings(ctx, machine, *change)
	}
	if err == nil && change != nil && s.Wifi.Pending && !noWait {
		a.note("The networks are changed; waiting until the machine reaches the relay with them (two minutes at most).")
		s, err = awaitNetworks(ctx, c, machine, s)
	}
	if err != nil {
		return err
	}
	if a.json {
		err = a.printJSON(s)
	} else {
		err = a.printSettings(s)
	}
	if err == nil && change != nil && change.Networks() && s.Wifi.LastChange == wire.WifiRolledBack {
		a.note("The relay wasn't reached with the changed networks: those of before are back.")
		return exitStatus(exitFailed)
	}
	return err
}

const (
	networksEvery = 3 * time.Second
	// networksLimit is above what the machine itself takes before it goes back,
	// by what joining the networks of before takes.
	networksLimit = 4 * time.Minute
)

// awaitNetworks asks until changed networks are kept or put back. A machine that
// isn't there is one that is joining.
func awaitNetworks(ctx context.Context, c *client.Client, machine string, s wire.Settings) (wire.Settings, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, networksLimit,
		wire.Errorf(wire.MachineUnreachable, "the machine hasn't come back with the changed networks, nor with those of before"))
	defer cancel()
	tick := time.NewTicker(networksEvery)
	defer tick.Stop()
	for s.Wifi.Pending {
		select {
		case <-ctx.Done():
			return s, context.Cause(ctx)
		case <-tick.C:
		}
		now, err := c.Settings(ctx, machine)
		switch {
		case err == nil:
			s = now
		case ctx.Err() != nil:
			return s, context.Cause(ctx)
		case !errors.Is(err, wire.MachineUnreachable) && !errors.Is(err, wire.RequestTimeout):
			return s, err
		}
	}
	return s, nil
}

func (a *app) printSettings(s wire.Settings) error {
	var t table
	row := func(what, value string) { t.add(plain(what), plain(dash(value))) }
	row("host name", s.Hostname)
	row("calls itself", first(s.Name, s.Hostname))
	row("time zone", first(s.Timezone, "UTC"))
	row("country", s.Wifi.Country)
	for _, w := range s.Wifi.Networks {
		text := []string{w.SSID}
		if w.Security == "open" {
			text = append(text, "open")
		}
		if w.Hidden {
			text = append(text, "hidden")
		}
		row("wifi", strings.Join(text, ", "))
	}
	if len(s.Wifi.Networks) == 0 {
		row("wifi", "")
	}
	switch {
	case s.Wifi.Pending:
		row("last change", "waits for the relay to be reached")
	case s.Wifi.LastChange == wire.WifiRolledBack:
		row("last change", "taken back: the relay wasn't reached")
	}
	row("rescue network", yesNo(s.Wifi.Rescue))
	ssh := yesNo(s.SSH.Enabled)
	if s.SSH.User != "" {
		ssh += ", as " + s.SSH.User
	}
	row("ssh", ssh)
	for _, k := range s.SSH.Keys {
		row("key", strings.TrimSpace(k.Type+" "+k.Fingerprint+" "+k.Comment))
	}
	return t.write(a.env.Stdout, a.style.out, a.style.width())
}
