package daemon

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"farhand/auth"
	"farhand/internal/atomicfile"
	"farhand/internal/backoff"
)

// A claim key lets this machine in without anybody at its screen. Whoever
// provisions the machine leaves it in a file that the daemon alone can read; the
// daemon redeems it, tries again for as long as only the network stands in the
// way, and then removes the file. What it can't remove it remembers as spent, so
// that a key is never tried after it was used or refused for good.

const (
	// claimName is the key's file in $RUNTIME_DIRECTORY, unless the
	// configuration names another.
	claimName = "claim"
	// spentName is the state directory's list of the hashes of spent keys.
	spentName = "claim.spent"
	maxClaim  = 4 << 10 // bytes of either file
)

// claimPath is where a claim key may lie; empty: nowhere.
func (d *daemon) claimPath() string {
	if d.config.ClaimKeyFile != "" {
		return d.config.ClaimKeyFile
	}
	if dir := getenv(d.opts.Environ, "RUNTIME_DIRECTORY"); dir != "" {
		return filepath.Join(dir, claimName)
	}
	return ""
}

// claimKey is the key that waits to be redeemed; empty if there is none.
func (d *daemon) claimKey() (string, error) {
	path := d.claimPath()
	if path == "" {
		return "", nil
	}
	b, err := atomicfile.Read(path, maxClaim)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("claim key: %w", err)
	}
	key := string(bytes.TrimSpace(b))
	if key == "" || d.isSpent(key) {
		return "", nil
	}
	return key, nil
}

func spentPath(stateDir string) string { return filepath.Join(stateDir, spentName) }

func spentHash(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

func (d *daemon) isSpent(key string) bool {
	b, err := atomicfile.Read(spentPath(d.config.StateDir), maxClaim)
	return err == nil && bytes.Contains(b, []byte(spentHash(key)))
}

// spend makes sure that the key isn't tried again, even if its file can't be
// removed or comes back. The list holds the newest one: a card has one key.
func (d *daemon) spend(key string) {
	if err := atomicfile.Write(spentPath(d.config.StateDir), []byte(spentHash(key)+"\n"), 0o600); err != nil {
		d.log.Error("it can't be remembered that the claim key is spent", "error", err)
	}
	if err := os.Remove(d.claimPath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.log.Info("the spent claim key's file stays where it is", "error", err)
	}
}

// refusedClaim tells a person why a key let nobody in.
func refusedClaim(err error) string {
	if errors.Is(err, auth.ErrInvalidGrant) {
		return "the claim key of this card isn't accepted: it has expired, was revoked or was used before"
	}
	return "the claim key of this card isn't accepted: " + err.Error()
}

// redeem turns a claim key that was left for this machine into a login. done is
// false if there is none, or if it was refused for good: then claimRefused says
// why, and pairing goes on with a code.
func (d *daemon) redeem(ctx context.Context) (tokens auth.Tokens, key string, done bool) {
	key, err := d.claimKey()
	if err != nil {
		d.log.Error("the claim key can't be read", "error", err)
	}
	if key == "" {
		return auth.Tokens{}, "", false
	}
	d.setState(StatePairing, "redeeming the claim key of this card")
	trouble := backoff.Backoff{Base: 2 * time.Second, Max: time.Minute, Jitter: 2 * time.Second}
	for {
		t, err := d.provider.RedeemClaim(ctx, key, d.deviceRequest())
		if err == nil {
			return t, key, true
		}
		if ctx.Err() != nil {
			return auth.Tokens{}, "", true
		}
		if auth.Refused(err) {
			d.log.Warn("the claim key was refused for good", "error", err)
			d.spend(key)
			d.setClaimRefused(refusedClaim(err))
			return auth.Tokens{}, "", false
		}
		wait := trouble.Next()
		d.log.Info("the claim key isn't redeemed yet", "error", err, "next", wait)
		d.setState(StatePairing, "redeeming the claim key of this card; trying again: "+reason(err))
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return auth.Tokens{}, "", true
		case <-timer.C:
		}
	}
}
