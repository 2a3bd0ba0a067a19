package client

import (
	"context"
	"net/http"
	"time"

	"farhand/wire"
)

// Owner is an account of the relay.
type Owner struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// LoginAnswer is what signing in gives: the token is the owner's own login.
type LoginAnswer struct {
	Token     string    `json:"token"`
	TokenType string    `json:"token_type"`
	ExpiresAt time.Time `json:"expires_at,omitzero"`
	Owner     Owner     `json:"owner"`
}

// Identity says whom a token stands for.
type Identity struct {
	Owner     Owner         `json:"owner"`
	Holder    string        `json:"holder"` // opaque id of this login or token
	Login     bool          `json:"login"`  // the owner's own login, which may manage
	ExpiresAt time.Time     `json:"expires_at,omitzero"`
	Machines  *[]string     `json:"machines"` // ids this token may use; nil: all
	Ceiling   *wire.Ceiling `json:"ceiling"`  // nil for the owner's own login
}

// Login signs in with name and passphrase. The Client itself goes on without a
// token: make another with the one that comes back.
func (c *Client) Login(ctx context.Context, name, passphrase string) (LoginAnswer, error) {
	var out LoginAnswer
	err := c.call(ctx, http.MethodPost, "/api/login", map[string]string{"name": name, "passphrase": passphrase}, &out)
	return out, err
}

// Setup creates the owner that a one-time setup token is for and signs in. A
// passphrase has at least 12 characters.
func (c *Client) Setup(ctx context.Context, setupToken, name, passphrase string) (LoginAnswer, error) {
	var out LoginAnswer
	in := map[string]string{"setup_token": setupToken, "name": name, "passphrase": passphrase}
	err := c.call(ctx, http.MethodPost, "/api/setup", in, &out)
	return out, err
}

// Logout ends this login.
func (c *Client) Logout(ctx context.Context) error {
	return c.call(ctx, http.MethodPost, "/api/logout", nil, nil)
}

// Whoami says whom the token stands for.
func (c *Client) Whoami(ctx context.Context) (Identity, error) {
	var out Identity
	err := c.call(ctx, http.MethodGet, "/api/whoami", nil, &out)
	return out, err
}
