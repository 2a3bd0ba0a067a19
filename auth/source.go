package auth

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

const (
	// refreshLead is how long before its end an access token is renewed, at
	// most; of short-lived ones a fifth of their life.
	refreshLead = 5 * time.Minute
	// closeGrace is how long Close lets a refresh in flight come to its end,
	// since giving it up may cost the login.
	closeGrace = 5 * time.Second
	// retryPause is how long a failed refresh stands for the next ones.
	retryPause = time.Second
	// aheadPatience is how long Token waits for a renewal that isn't urgent.
	aheadPatience = 5 * time.Second
)

// Source hands out access tokens for all sockets of a daemon. Its methods are
// safe for concurrent use; however many ask at once, there is one refresh.
type Source struct {
	provider *Provider
	store    *Store
	log      *slog.Logger
	ctx      context.Context // of refreshes; ends with Close
	cancel   context.CancelFunc
	running  sync.WaitGroup

	mu       sync.Mutex
	tokens   Tokens
	renew    time.Time // when to renew ahead of time, zero: never
	unsaved  *Tokens   // a new pair that the disk didn't take yet
	flight   *flight
	failed   error // the last refresh, if it failed in passing
	failedAt time.Time
	closed   bool
	renewed  func()
}

// flight is one refresh.
type flight struct {
	done chan struct{}
	err  error // valid after done
}

// NewSource loads the stored login. No login is no error: Token says so.
func NewSource(provider *Provider, store *Store) (*Source, error) {
	s := &Source{provider: provider, store: store, log: provider.log()}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	tokens, err := store.Load()
	if err != nil && !errors.Is(err, ErrLoginNeeded) {
		s.cancel()
		return nil, fmt.Errorf("stored login: %w", err)
	}
	s.set(tokens)
	return s, nil
}

// Close waits for a refresh in flight, for a bounded time.
func (s *Source) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	impatience := time.AfterFunc(closeGrace, s.cancel)
	s.running.Wait()
	impatience.Stop()
	s.cancel()
	return nil
}

// OnRenewed has f called whenever the platform gave a new pair, once that is on
// the disk. f must be quick and must not call the Source.
func (s *Source) OnRenewed(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.renewed = f
}

// set is called with mu held, or before anybody else has s.
func (s *Source) set(t Tokens) {
	s.tokens = t
	s.renew = time.Time{}
	if !t.Expires.IsZero() {
		s.renew = t.Expires.Add(-min(refreshLead, max(time.Until(t.Expires)/5, 0)))
	}
}

// Token is an access token that should work. It is renewed first if its time is
// over, or nearly; in the latter case a failure doesn't matter yet. The error is
// ErrLoginNeeded if there is no login (any more), or a passing one.
func (s *Source) Token(ctx context.Context) (string, error) {
	s.mu.Lock()
	t, renew := s.tokens, s.renew
	s.mu.Unlock()
	switch now := time.Now(); {
	case t.AccessToken == "":
		return "", ErrLoginNeeded
	case renew.IsZero() || now.Before(renew):
		return t.AccessToken, nil
	case now.Before(t.Expires):
		soon, cancel := context.WithTimeout(ctx, aheadPatience)
		err := s.refresh(soon, t.AccessToken)
		cancel()
		if err != nil && !errors.Is(err, ErrLoginNeeded) && ctx.Err() == nil {
			return t.AccessToken, nil
		}
		return s.current(err)
	default:
		return s.current(s.refresh(ctx, t.AccessToken))
	}
}

// Rejected is called after the platform answered 401 to token, and gives one
// that it hasn't rejected yet: the one that somebody else got meanwhile, or a
// renewed one.
func (s *Source) Rejected(ctx context.Context, token string) (string, error) {
	return s.current(s.refresh(ctx, token))
}

func (s *Source) current(err error) (string, error) {
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tokens.AccessToken == "" {
		return "", ErrLoginNeeded
	}
	return s.tokens.AccessToken, nil
}

// Expiry is when the access token expires; zero if that isn't known.
func (s *Source) Expiry() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tokens.Expires
}

// NextRefresh is when Token will renew the access token ahead of its end; zero
// if it won't.
func (s *Source) NextRefresh() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.renew
}

// HasLogin says whether there are tokens, without asking whether they work.
func (s *Source) HasLogin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tokens.AccessToken != ""
}

// Adopt stores the tokens of a new login and uses them from now on.
func (s *Source) Adopt(t Tokens) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.store.Save(t); err != nil {
		return err
	}
	s.set(t)
	s.unsaved, s.failed = nil, nil
	return s.store.ClearPending()
}

// Drop forgets the login, here and on the disk.
func (s *Source) Drop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.drop()
}

func (s *Source) drop() error {
	s.set(Tokens{})
	s.unsaved, s.failed = nil, nil
	return s.store.Drop()
}

// Revoke ends the login at the platform, then forgets it. After an error it is
// kept.
func (s *Source) Revoke(ctx context.Context) error {
	s.mu.Lock()
	t := s.tokens
	s.mu.Unlock()
	if t.AccessToken == "" {
		return ErrLoginNeeded
	}
	if err := s.provider.Revoke(ctx, t); err != nil {
		return err
	}
	return s.Drop()
}

// refresh makes sure that the access token is another than stale. The refresh
// itself isn't bound to ctx: whoever gives up waiting must not lose the pair
// that is on its way.
func (s *Source) refresh(ctx context.Context, stale string) error {
	s.mu.Lock()
	switch {
	case s.tokens.AccessToken == "":
		s.mu.Unlock()
		return ErrLoginNeeded
	case s.tokens.AccessToken != stale:
		s.mu.Unlock()
		return nil
	case s.closed:
		s.mu.Unlock()
		return errors.New("token source is closed")
	case s.failed != nil && time.Since(s.failedAt) < retryPause:
		err := s.failed
		s.mu.Unlock()
		return err
	}
	f := s.flight
	if f == nil {
		f = &flight{done: make(chan struct{})}
		s.flight = f
		s.running.Add(1)
		go func() {
			defer s.running.Done()
			s.fly(f)
		}()
	}
	s.mu.Unlock()
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *Source) fly(f *flight) {
	f.err = s.renewal()
	s.mu.Lock()
	s.flight = nil
	s.failed, s.failedAt = nil, time.Now()
	if f.err != nil && !errors.Is(f.err, ErrLoginNeeded) {
		s.failed = f.err
	}
	s.mu.Unlock()
	close(f.done)
}

// renewal gets a new pair, puts it on the disk, and only then into use.
func (s *Source) renewal() error {
	s.mu.Lock()
	old, fresh := s.tokens, s.unsaved
	s.mu.Unlock()
	if fresh == nil {
		if old.RefreshToken == "" {
			return s.invalid(old, errors.New("there is no refresh token"))
		}
		t, err := s.provider.Refresh(s.ctx, old.RefreshToken)
		if errors.Is(err, ErrInvalidGrant) {
			return s.invalid(old, err)
		}
		if err != nil {
			// The next attempt sends the same refresh token: there is no other.
			s.log.Warn("token refresh failed, it may have been redeemed all the same", "err", err)
			return err
		}
		fresh = &t
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tokens != old {
		return nil // a new login, or none, while we asked
	}
	if err := s.store.Save(*fresh); err != nil {
		s.unsaved = fresh // the old refresh token is spent, so this one must not be lost
		s.log.Error("renewed tokens can't be stored", "err", err)
		return fmt.Errorf("store renewed tokens: %w", err)
	}
	s.unsaved = nil
	s.set(*fresh)
	s.log.Info("access token renewed", "expires", fresh.Expires)
	if s.renewed != nil {
		s.renewed()
	}
	return nil
}

// invalid is called when the platform no longer takes the refresh token. If
// somebody stored another login meanwhile, that one counts; else a new login is
// needed.
func (s *Source) invalid(old Tokens, cause error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tokens != old {
		return nil
	}
	stored, err := s.store.Load()
	if err == nil && stored.AccessToken != old.AccessToken && stored.RefreshToken != old.RefreshToken {
		s.set(stored)
		return nil
	}
	s.log.Warn("login is no longer accepted", "err", cause)
	if err := s.drop(); err != nil {
		s.log.Error("tokens can't be removed", "err", err)
	}
	return fmt.Errorf("%w: %w", ErrLoginNeeded, cause)
}
