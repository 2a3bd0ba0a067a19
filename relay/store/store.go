// Package store keeps the relay's state: small records under keys, changed one
// key at a time by compare-and-swap, with expiry and a watch by prefix.
//
// It promises no more than a replicated key-value store can: there are no
// transactions over several keys, so every rule that must hold at once lives in
// one record. Bolt is the implementation for one host; package storetest holds
// the suite that every implementation passes, in the words of this file.
package store

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Errors of a Store. Anything else is a failure of the store itself.
var (
	ErrNotFound = errors.New("no such key")
	ErrExists   = errors.New("the key exists")
	ErrConflict = errors.New("the record was changed meanwhile")
	ErrClosed   = errors.New("the store is closed")
	ErrLocked   = errors.New("the store is in use by another process")
	ErrInvalid  = errors.New("not a key, prefix or value of the store")
)

// Limits. They are what a NATS JetStream bucket can hold as well: keys are its
// subjects, and its default max_payload is 1 MiB.
const (
	MaxKey   = 512       // bytes
	MaxValue = 512 << 10 // bytes
)

// Entry is one record.
type Entry struct {
	Key      string
	Value    []byte    // the caller's own copy
	Revision uint64    // grows with every write of the store and is never used twice
	Expires  time.Time // zero: never
}

// Event says that a key changed. Entry is the newest state at the time of
// delivery; Deleted means that there is none any more.
type Event struct {
	Entry
	Deleted bool
}

// Store is the relay's state. All methods are safe for concurrent use.
//
// A key is one or more tokens of ASCII letters, digits, "_", "=" and "-",
// separated by single dots, at most MaxKey bytes (Token makes one of any
// string). A prefix is empty or whole tokens with the dot after them. An entry
// whose time is past is as if it weren't there, for every method. A write that
// returned nil survives a crash of the process and of the machine; a write that
// returned an error other than a failure of the store changed nothing.
type Store interface {
	// Get returns the entry of key, or ErrNotFound.
	Get(ctx context.Context, key string) (Entry, error)
	// Create writes a key that isn't there, and returns its revision. If it is
	// there: ErrExists. A zero expires means never.
	Create(ctx context.Context, key string, value []byte, expires time.Time) (uint64, error)
	// Update replaces value and expiry if the key still has the revision last,
	// and returns the new one. Otherwise, and if the key is gone: ErrConflict.
	Update(ctx context.Context, key string, value []byte, expires time.Time, last uint64) (uint64, error)
	// Delete removes the key if it still has the revision last, otherwise
	// ErrConflict. With last 0 it removes whatever is there, and nothing there
	// is no error.
	Delete(ctx context.Context, key string, last uint64) error
	// List returns the entries below prefix, sorted by key.
	List(ctx context.Context, prefix string) ([]Entry, error)
	// Watch reports every change below prefix that is made after it returned,
	// by anybody. Changes of one key that follow each other fast may be told as
	// one; the last is never lost. Expiry is told as Deleted within a minute.
	// The channel is closed when ctx ends or the store is closed.
	Watch(ctx context.Context, prefix string) (<-chan Event, error)
	// Close ends watches, waits for them, and closes. Later calls: ErrClosed.
	Close() error
}

// Token makes one token of a key out of any non-empty string. Different strings
// give different tokens, and a string that is a token already stays itself
// (unless it begins with "=").
func Token(s string) string {
	if s != "" && s[0] != '=' && isToken(s) {
		return s
	}
	return "=" + base64.RawURLEncoding.EncodeToString([]byte(s))
}

// Key joins tokens to a key: every part goes through Token.
func Key(parts ...string) string {
	var b strings.Builder
	for i, p := range parts {
		if i > 0 {
			b.WriteByte('.')
		}
		b.WriteString(Token(p))
	}
	return b.String()
}

// Prefix joins tokens to a prefix for List and Watch.
func Prefix(parts ...string) string {
	if len(parts) == 0 {
		return ""
	}
	return Key(parts...) + "."
}

func isToken(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '=', c == '-':
		default:
			return false
		}
	}
	return s != ""
}

// CheckKey returns ErrInvalid, wrapped, if key isn't one. For implementations.
func CheckKey(key string) error {
	if len(key) > MaxKey {
		return fmt.Errorf("key of %d bytes: %w", len(key), ErrInvalid)
	}
	for t := range strings.SplitSeq(key, ".") {
		if !isToken(t) {
			return fmt.Errorf("key %q: %w", key, ErrInvalid)
		}
	}
	return nil
}

// CheckPrefix returns ErrInvalid, wrapped, if prefix isn't one. For implementations.
func CheckPrefix(prefix string) error {
	if prefix == "" {
		return nil
	}
	rest, ok := strings.CutSuffix(prefix, ".")
	if !ok {
		return fmt.Errorf("prefix %q: %w", prefix, ErrInvalid)
	}
	return CheckKey(rest)
}

// CheckValue returns ErrInvalid, wrapped, if value is too long. For implementations.
func CheckValue(key string, value []byte) error {
	if len(value) > MaxValue {
		return fmt.Errorf("value of %q, %d bytes: %w", key, len(value), ErrInvalid)
	}
	return nil
}

// Split takes a key apart that Key made.
func Split(key string) []string {
	parts := strings.Split(key, ".")
	for i, p := range parts {
		if b, ok := strings.CutPrefix(p, "="); ok {
			if text, err := base64.RawURLEncoding.DecodeString(b); err == nil {
				parts[i] = string(text)
			}
		}
	}
	return parts
}
