package cli

import (
	"context"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"farhand/client"
)

type loginFlags struct {
	name, passphraseFile, setup, tokenFile, pin string
}

func (a *app) login() *cobra.Command {
	var f loginFlags
	cmd := &cobra.Command{
		Use:   "login URL",
		Short: "Sign in to a relay",
		Long: `login signs in to a relay with a name and a passphrase and remembers the login.
It asks for both on the terminal unless flags give them, and needs no browser.

The first owner of a relay sets up an account with the one-time token, or the whole
link, that the relay printed at its first start: --setup TOKEN. A program signs in
with a token that farhand token create made: --token-file FILE.

A relay with a certificate of its own is trusted by --ca-sha256, which
farhand-relay init printed and which is remembered too.`,
		Example: `  farhand login https://relay.example.org
  farhand login https://relay.lan:7443 --ca-sha256 3b1c… --setup 8f2k…
  farhand login https://relay.example.org --name ann --passphrase-file ~/.secrets/relay
  printenv TOKEN | farhand login https://relay.example.org --token-file -`,
		Args: between(0, 1, "the URL of a relay"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.runLogin(cmd.Context(), args, f)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.name, "name", "", "account name")
	flags.StringVar(&f.passphraseFile, "passphrase-file", "", "read the passphrase from the first line of `FILE` (- for standard input)")
	flags.StringVar(&f.setup, "setup", "", "set up an account with this one-time `TOKEN` or link")
	flags.StringVar(&f.tokenFile, "token-file", "", "sign in with the operator token in `FILE` (- for standard input)")
	flags.StringVar(&f.pin, "ca-sha256", "", "trust exactly the certificate with this SHA-256 (`HEX`, of its DER) as the relay's CA")
	cmd.MarkFlagsMutuallyExclusive("token-file", "name")
	cmd.MarkFlagsMutuallyExclusive("token-file", "passphrase-file")
	cmd.MarkFlagsMutuallyExclusive("token-file", "setup")
	return cmd
}

func (a *app) runLogin(ctx context.Context, args []string, f loginFlags) error {
	a.setup = f.setup != ""
	l, err := a.loginTo(args, f)
	if err != nil {
		return err
	}
	if f.tokenFile != "" {
		if l.Token, err = a.secretFrom(f.tokenFile); err != nil {
			return usage("token: %v", err)
		}
		if l.Token = strings.TrimSpace(l.Token); l.Token == "" {
			return usage("the token is empty")
		}
		return a.keepToken(ctx, l)
	}
	c, err := a.client(l)
	if err != nil {
		return err
	}
	defer c.Close()
	answer, err := a.signIn(ctx, c, f)
	if err != nil {
		return err
	}
	l.URL, l.Token, l.Owner = c.URL(), answer.Token, answer.Owner.Name
	if err := a.save(l); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(map[string]any{"url": l.URL, "owner": answer.Owner, "expires_at": answer.ExpiresAt})
	}
	a.tell("Signed in to %s as %s; the login ends %s.", l.URL, clean(l.Owner), a.until(answer.ExpiresAt))
	return nil
}

// loginTo is the relay to sign in to: the argument, or the one that is
// remembered, for which the pin is remembered too.
func (a *app) loginTo(args []string, f loginFlags) (login, error) {
	kept, _ := a.load() // what is damaged is about to be replaced
	asked := first(append(args, a.relay, a.env.Getenv("FARHAND_URL"), kept.URL)...)
	if token, base, ok := setupLink(asked); ok && f.setup == "" {
		return login{}, usage("that is a setup link: farhand login %s --setup %s", base, token)
	}
	if asked == "" {
		return login{}, usage("name the relay: farhand login URL")
	}
	l := login{URL: asked, CASHA256: first(f.pin, a.env.Getenv("FARHAND_CA_SHA256"))}
	if l.CASHA256 != "" && !strings.Contains(l.URL, "://") {
		l.URL = "https://" + l.URL // on loopback, too: a pin is for a certificate
	}
	if l.CASHA256 == "" && sameRelay(l.URL, kept.URL) {
		l.CASHA256 = kept.CASHA256
	}
	return l, nil
}

// keepToken remembers a token that was made elsewhere, once the relay took it.
func (a *app) keepToken(ctx context.Context, l login) error {
	c, err := a.client(l)
	if err != nil {
		return err
	}
	defer c.Close()
	me, err := c.Whoami(ctx)
	if err != nil {
		return err
	}
	l.URL, l.Owner = c.URL(), me.Owner.Name
	if err := a.save(l); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(map[string]any{"url": l.URL, "owner": me.Owner, "expires_at": me.ExpiresAt})
	}
	a.tell("Signed in to %s with a token of %s; it ends %s.", l.URL, clean(l.Owner), a.until(me.ExpiresAt))
	return nil
}

// signIn asks for what the flags don't give and logs in or sets up.
func (a *app) signIn(ctx context.Context, c *client.Client, f loginFlags) (client.LoginAnswer, error) {
	var none client.LoginAnswer
	name, passphrase, err := a.credentials(ctx, f)
	if err != nil {
		return none, err
	}
	if f.setup == "" {
		return c.Login(ctx, name, passphrase)
	}
	token := f.setup
	if t, _, ok := setupLink(f.setup); ok {
		token = t
	}
	return c.Setup(ctx, token, name, passphrase)
}

func (a *app) credentials(ctx context.Context, f loginFlags) (name, passphrase string, err error) {
	name = f.name
	if !isTerminal(a.env.Stdin) {
		switch {
		case name == "":
			return "", "", usage("there is no terminal to ask on: give --name")
		case f.passphraseFile == "":
			return "", "", usage("there is no terminal to ask on: give --passphrase-file FILE, or - for standard input")
		}
	}
	if name == "" {
		if name, err = a.ask(ctx, "Name: "); err != nil {
			return "", "", err
		}
		name = strings.TrimSpace(name)
	}
	if f.passphraseFile != "" {
		if passphrase, err = a.secretFrom(f.passphraseFile); err != nil {
			return "", "", usage("passphrase: %v", err)
		}
		return name, passphrase, nil
	}
	question := "Passphrase: "
	if f.setup != "" {
		question = "New passphrase (at least 12 characters): "
	}
	if passphrase, err = a.askSecret(ctx, question); err != nil || f.setup == "" {
		return name, passphrase, err
	}
	again, err := a.askSecret(ctx, "The same again: ")
	if err == nil && again != passphrase {
		err = usage("the two passphrases differ")
	}
	return name, passphrase, err
}

// setupLink takes the link that a relay prints apart.
func setupLink(s string) (token, base string, ok bool) {
	u, err := url.Parse(s)
	if err != nil || !strings.HasSuffix(u.Path, "/setup") {
		return "", "", false
	}
	token = u.Query().Get("token")
	return token, u.Scheme + "://" + u.Host + strings.TrimSuffix(u.Path, "/setup"), token != ""
}
