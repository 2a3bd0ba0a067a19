package daemon

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"farhand/auth"
	"farhand/config"
	"farhand/identity"
)

// LoginOptions are what Login and Logout need.
type LoginOptions struct {
	Config  config.Config
	Log     *slog.Logger
	Screen  io.Writer
	Input   io.Reader
	Environ []string
	Local   Local
	// Tokens, if given, are stored as they are.
	Tokens []byte
}

// Login gets tokens and gives them to the running daemon, or stores them where
// the next start finds them.
func Login(ctx context.Context, o LoginOptions) error {
	provider, err := loginProvider(o)
	if err != nil {
		return err
	}
	var tokens auth.Tokens
	if o.Tokens != nil {
		if tokens, err = auth.ParseTokens(o.Tokens); err != nil {
			return err
		}
	} else if tokens, err = interactive(ctx, o, provider); err != nil {
		return err
	}
	return deliver(ctx, o, provider, tokens)
}

func loginProvider(o LoginOptions) (*auth.Provider, error) {
	client, err := httpClient(o.Config)
	if err != nil {
		return nil, err
	}
	base, err := auth.BaseURL(o.Config.Platform.String())
	if err != nil {
		return nil, &ConfigError{err}
	}
	return &auth.Provider{Base: base, ClientID: o.Config.OAuthClientID, HTTP: client, Log: o.Log}, nil
}

// interactive pairs by device code, or by a pasted address where there is no
// device authorisation.
func interactive(ctx context.Context, o LoginOptions, p *auth.Provider) (auth.Tokens, error) {
	if s, err := o.Local.Status(ctx); err == nil && s.Pairing != nil {
		return auth.Tokens{}, fmt.Errorf("the running daemon is already pairing; approve its code: farhand approve %s", s.Pairing.UserCode)
	}
	request, err := loginRequest(ctx, o)
	if err != nil {
		return auth.Tokens{}, err
	}
	pending, err := p.AuthorizeDevice(ctx, request)
	if errors.Is(err, auth.ErrNotOffered) {
		return paste(ctx, o, p)
	}
	if err != nil {
		return auth.Tokens{}, err
	}
	shown := PairingStatus{UserCode: pending.UserCode, VerificationURI: pending.VerificationURI, VerificationURIComplete: pending.VerificationURIComplete, ExpiresAt: pending.Expires}
	if err := showCode(o.Screen, shown, time.Now()); err != nil {
		return auth.Tokens{}, err
	}
	return p.Poll(ctx, &pending)
}

func loginRequest(ctx context.Context, o LoginOptions) (auth.DeviceRequest, error) {
	// No daemon may have run here yet.
	if err := os.MkdirAll(o.Config.StateDir, 0o700); err != nil {
		return auth.DeviceRequest{}, fmt.Errorf("state directory: %w", err)
	}
	id, err := identity.MachineID(ctx, identity.Options{StateDir: o.Config.StateDir, Override: o.Config.MachineID})
	if err != nil {
		return auth.DeviceRequest{}, fmt.Errorf("machine id: %w", err)
	}
	d := daemon{services: &services{config: o.Config, identity: id}}
	return d.deviceRequest(), nil
}

func paste(ctx context.Context, o LoginOptions, p *auth.Provider) (auth.Tokens, error) {
	login := p.PasteLogin()
	if _, err := fmt.Fprintf(o.Screen, `This platform offers no pairing code. Open this address in any browser, log in and
allow access:

  %s

The browser then ends at an address that begins with %s
and can't be opened; that is expected. Paste the whole address here:

`, login.URL(), auth.RedirectURI); err != nil {
		return auth.Tokens{}, err
	}
	line, err := readLine(ctx, o.Input)
	if err != nil {
		return auth.Tokens{}, fmt.Errorf("no address was pasted: %w", err)
	}
	return login.Finish(ctx, line)
}

// readLine reads one line, giving up when ctx ends.
func readLine(ctx context.Context, r io.Reader) (string, error) {
	type result struct {
		line string
		err  error
	}
	done := make(chan result, 1)
	go func() {
		line, err := bufio.NewReader(io.LimitReader(r, 64<<10)).ReadString('\n')
		if line != "" {
			err = nil
		}
		done <- result{line, err}
	}()
	select {
	case r := <-done:
		return r.line, r.err
	case <-ctx.Done(): // the read ends with the process
		return "", context.Cause(ctx)
	}
}

// deliver hands tokens to the running daemon or, if there is none, stores them
// under the lock of the state directory.
func deliver(ctx context.Context, o LoginOptions, p *auth.Provider, t auth.Tokens) error {
	b, err := json.Marshal(map[string]string{
		"access_token": t.AccessToken, "refresh_token": t.RefreshToken, "access_token_expires_at": expiry(t),
	})
	if err != nil {
		return err
	}
	err = o.Local.Login(ctx, b)
	if err == nil {
		_, err = fmt.Fprintln(o.Screen, "Logged in; the running daemon connects now.")
		return err
	}
	if !errors.Is(err, ErrNotRunning) {
		return err
	}
	lock, err := identity.LockStateDir(o.Config.StateDir)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := auth.NewStore(o.Config.StateDir, p.Base, credentialsDir(o.Environ)).Save(t); err != nil {
		return err
	}
	_, err = fmt.Fprintln(o.Screen, "Logged in. Start the daemon with: farhandd run")
	return err
}

func expiry(t auth.Tokens) string {
	if t.Expires.IsZero() {
		return ""
	}
	return t.Expires.UTC().Format(time.RFC3339)
}

// Logout revokes this machine's tokens at the platform and forgets them.
func Logout(ctx context.Context, o LoginOptions) error {
	provider, err := loginProvider(o)
	if err != nil {
		return err
	}
	lock, err := identity.LockStateDir(o.Config.StateDir)
	if err != nil {
		return fmt.Errorf("stop the daemon first: %w", err)
	}
	defer lock.Close()
	source, err := auth.NewSource(provider, auth.NewStore(o.Config.StateDir, provider.Base, credentialsDir(o.Environ)))
	if err != nil {
		return err
	}
	defer source.Close()
	if err := source.Revoke(ctx); err != nil {
		return fmt.Errorf("revoke: %w; the tokens are kept", err)
	}
	_, err = fmt.Fprintln(o.Screen, "Logged out.")
	return err
}
