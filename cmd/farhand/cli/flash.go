package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"farhand/client"
	"farhand/image/flash"
	"farhand/provision/preseed"
)

func (a *app) flash() *cobra.Command {
	var f flashFlags
	cmd := &cobra.Command{
		Use:   "flash IMAGE DEVICE|FILE",
		Short: "Write the appliance's image onto a card, with its settings",
		Long: `flash writes an image (plain, .xz or .gz) onto a card, reads it back, and puts the
card's settings onto its first partition. With the .bmap file beside the image only
what has content is written. If its checksum lies beside it (NAME.sha256), that is
compared first. A disk that is in use is refused, and before anything is overwritten
flash asks once. Writing to a device takes Linux and root; elsewhere, write to a file.

If you are signed in to a relay, the card gets a claim key of its own, good for one
machine and 7 days: the machine pairs with nobody looking, and is yours. Otherwise it
shows a code on its screen, for farhand approve.

The shell is off unless --shell turns it on.`,
		Example: `  sudo -E farhand flash farhand-arm64.img.xz /dev/sdb --name greenhouse
  sudo -E farhand flash farhand-arm64.img.xz /dev/mmcblk0 --wifi home --country DE --wifi-password-file wifi.txt
  farhand flash farhand-arm64.img.xz card.img --no-claim --yes`,
		Args: between(2, 2, "an IMAGE and a DEVICE or FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.runFlash(cmd.Context(), args[0], args[1], f)
		},
	}
	f.register(cmd)
	return cmd
}

// flashed is what flash says with --json.
type flashed struct {
	Target     string   `json:"target"`
	ImageBytes int64    `json:"image_size_bytes"`
	Written    int64    `json:"written_bytes"`
	Checked    string   `json:"sha256_file,omitempty"` // that the image is as it says
	Files      []string `json:"files"`
	Relay      string   `json:"relay,omitempty"`
	ClaimID    string   `json:"claim_id,omitempty"`
	Hostname   string   `json:"hostname,omitempty"`
	Rescue     string   `json:"rescue_passphrase"`
}

func (a *app) runFlash(ctx context.Context, image, path string, f flashFlags) error {
	settings, err := a.cardSettings(ctx, f)
	if err != nil {
		return err
	}
	source, err := flash.OpenSource(image, f.bmap)
	if err != nil {
		return err
	}
	defer source.Close()
	if source.Reads(path) {
		return usage("%s is what is read: write to another file", path)
	}
	if err := source.TakesSettings(); err != nil {
		return fmt.Errorf("%s: %w", image, err)
	}
	target, err := flash.InspectTarget(path)
	if err != nil {
		return err
	}
	claim, err := a.cardClaim(ctx, f)
	if err != nil {
		return err
	}
	tell, end := a.flashProgress(ctx)
	checked, err := source.Check(ctx, tell)
	end()
	if err != nil {
		return err
	}
	if checked != "" {
		a.note("%s is what %s says.", filepath.Base(image), filepath.Base(checked))
	}
	if err := a.mayOverwrite(ctx, target, image, f.yes); err != nil {
		return err
	}
	done, err := a.writeCard(ctx, source, target, claim, &settings)
	if err != nil {
		claim.drop(ctx)
		return fmt.Errorf("%s: %w", path, err)
	}
	if a.json {
		return a.printJSON(flashed{path, done.Size, done.Written, checked, []string{preseed.FarhandFile, preseed.PreseedFile},
			settings.Farhand.Relay, claim.made.ID, settings.Hostname, settings.Farhand.RescuePassphrase})
	}
	a.tellFlashed(path, done, settings, claim.made)
	return nil
}

// writeCard writes a card. Its claim key is made when the image is on it: what may
// take minutes, and be killed meanwhile, leaves none behind.
func (a *app) writeCard(ctx context.Context, source *flash.Source, target flash.Target, claim *cardClaim, s *preseed.Settings) (flash.Result, error) {
	card, err := flash.OpenTarget(target)
	if err != nil {
		return flash.Result{}, err
	}
	files := func(ctx context.Context) (_ map[string][]byte, err error) {
		if s.Farhand.ClaimKey, err = claim.key(ctx); err != nil {
			return nil, err
		}
		return map[string][]byte{preseed.PreseedFile: s.Preseed(), preseed.FarhandFile: s.Farhand.TOML()}, nil
	}
	tell, end := a.flashProgress(ctx)
	done, err := flash.Write(ctx, card, flash.Card{Image: source, Files: files, When: a.env.Now(), Progress: tell})
	end()
	return done, errors.Join(err, card.Close())
}

// mayOverwrite asks before something is lost.
func (a *app) mayOverwrite(ctx context.Context, t flash.Target, image string, yes bool) error {
	what := t.Path
	switch {
	case !t.Exists || yes:
		return nil
	case t.Device:
		kind := "a fixed disk, no card"
		if t.Removable {
			kind = "removable"
		}
		what = fmt.Sprintf("%s (%s, %.1f GB, %s)", t.Path, dash(clean(t.Model)), float64(t.Size)/1e9, kind)
	}
	if !a.interactive() {
		return usage("%s would be overwritten: say --yes, or ask for it on a terminal", what)
	}
	ok, err := a.confirm(ctx, fmt.Sprintf("Everything on %s will be lost. Write %s onto it?", what, filepath.Base(image)))
	if err == nil && !ok {
		a.note("Nothing was written.")
		return exitStatus(exitFailed)
	}
	return err
}

// flashProgress shows a bar for each phase.
func (a *app) flashProgress(ctx context.Context) (tell flash.Progress, end func()) {
	var (
		now flash.Phase
		one *bar
	)
	end = func() {
		if one != nil {
			one.end()
		}
	}
	return func(p flash.Phase, done, total int64) {
		if p != now {
			end()
			now, one = p, a.progress(ctx, string(p))
		}
		one.tell(done, total)
	}, end
}

// cardClaim is the claim key that a card gets, or none.
type cardClaim struct {
	app    *app
	wanted bool
	login  login
	what   client.NewClaim
	made   client.IssuedClaim // once it is
}

// cardClaim says which key a card is to get, and asks the relay whether it lets its
// owner in: that is better known before anything is overwritten.
func (a *app) cardClaim(ctx context.Context, f flashFlags) (*cardClaim, error) {
	k := &cardClaim{app: a}
	var err error
	if k.login, err = a.who(); f.noClaim || err != nil && !f.claim {
		return k, nil
	} else if err != nil {
		return nil, err
	}
	allowed, err := f.allowed()
	if err != nil {
		return nil, err
	}
	k.wanted, k.what = true, client.NewClaim{MachineName: f.name, Capabilities: allowed, Roots: f.roots}
	return k, k.with(func(c *client.Client) error {
		_, err := c.Claims(ctx)
		return err
	})
}

func (k *cardClaim) with(do func(*client.Client) error) error {
	c, err := k.app.client(k.login)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := do(c); err != nil {
		return fmt.Errorf("claim key (--no-claim does without): %w", err)
	}
	return nil
}

// key makes the key; empty if none is wanted.
func (k *cardClaim) key(ctx context.Context) (string, error) {
	if !k.wanted {
		return "", nil
	}
	err := k.with(func(c *client.Client) (err error) {
		k.made, err = c.CreateClaim(ctx, k.what)
		return err
	})
	return k.made.ClaimKey, err
}

// drop revokes a key that is on no whole card, also after an interrupt.
func (k *cardClaim) drop(ctx context.Context) {
	id := k.made.ID
	if id == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	c, err := k.app.client(k.login)
	if err == nil {
		defer c.Close()
		err = c.RevokeClaim(ctx, id)
	}
	if err != nil {
		k.app.note("The claim key %s is on no whole card and still good: farhand claim revoke %s", id, id)
	}
}

// tellFlashed says what happens next.
func (a *app) tellFlashed(path string, done flash.Result, s preseed.Settings, claim client.IssuedClaim) {
	a.tell("%s holds the image: %d MB written and read back.", path, done.Written/1e6)
	a.printf("\n")
	a.tell("Put the card into the machine and switch it on. It needs no screen.")
	name := s.Hostname
	if name == "" {
		name = "farhand- and the end of its serial number"
	}
	a.tell("  Its name in the network: %s", name)
	switch {
	case s.Wifi != nil:
		a.tell("  Network: Wi-Fi %s, or a cable", clean(preseed.SSIDText(s.Wifi.SSID)))
	default:
		a.tell("  Network: a cable, for no Wi-Fi was named")
	}
	if claim.ID != "" {
		a.tell("  It pairs with %s by itself, by a key that is good once; %s: farhand machines", s.Farhand.Relay, a.ending(claim.ExpiresAt))
	} else {
		a.tell("  It shows a code, on a screen, the serial console and in PAIR.TXT on the card: farhand approve CODE")
	}
	if len(s.Farhand.Buses) > 0 {
		a.tell("  It starts twice the first time, since its firmware reads which buses are on before the system does")
	}
	if !s.Farhand.Shell {
		a.tell("  Commands are off (--shell turns them on)")
	}
	if s.User != nil && !s.SSH.Enabled {
		a.tell("  SSH is off (--ssh-key turns it on), so %s can't log in", s.User.Name)
	}
	a.tell("  Without a network for two minutes it opens a Wi-Fi of its own, with the same name. Its password:")
	a.printf("\n    %s\n", s.Farhand.RescuePassphrase)
}
