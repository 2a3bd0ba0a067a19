package rest

import (
	"context"
	"net/http"
	"time"

	"farhand/wire"
)

const (
	// joinPoll: docs: appkeys: "polls ... for a decision every second"; without a
	// poll for more than 5 s the request is dropped.
	joinPoll = time.Second
	// joinLife is how long a request is waited for (octoprint.plugins.appkeys:
	// CUTOFF_TIME, 10 minutes).
	joinLife = 10 * time.Minute
	joinAsk  = 4 * time.Second // one poll, so that the next is in time
)

// Joining is a request for an application key that waits for its decision.
type Joining struct {
	// Dialog is the page where it can be decided (from 1.8.0), or empty.
	Dialog string

	c    *Client
	path []string
}

// Join asks for a key for an application; user limits who may decide, if not
// empty (docs: appkeys, "Workflow").
func (c *Client) Join(ctx context.Context, app, user string) (*Joining, error) {
	probe := call{method: http.MethodGet, path: []string{"plugin", "appkeys", "probe"}}
	err := c.do(ctx, probe, nil)
	if status(err) == http.StatusNotFound {
		return nil, wire.Errorf(wire.FeatureNotSupported, "the printer's server hands out no application keys").
			With("feature", "appkeys").With("hint", "make an API key on the server's own page and name its file in hardware.printer_keys")
	}
	if err != nil {
		return nil, err
	}
	body := map[string]string{"app": app}
	if user != "" {
		body["user"] = user
	}
	q := call{method: http.MethodPost, path: []string{"plugin", "appkeys", "request"}, body: body}
	resp, err := c.send(ctx, q)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if err := c.failure(resp, q); err != nil {
		return nil, err
	}
	var answer struct {
		Token  string `json:"app_token"`
		Dialog string `json:"auth_dialog"`
	}
	if err := c.decode(resp, q, &answer); err != nil && resp.Header.Get("Location") == "" {
		return nil, err
	}
	j := &Joining{c: c, Dialog: wire.Clean(answer.Dialog, 1000), path: c.below(resp, resp.Header.Get("Location"))}
	if j.path == nil { // a proxy that hides its address from the server: the token is enough
		token := answer.Token
		if token == "" {
			token = lastSegment(resp.Header.Get("Location"))
		}
		if token == "" {
			return nil, wire.Errorf(wire.HardwareTransferFailed, "the printer's server doesn't say where to ask for the decision").With("reason", "bad_answer")
		}
		j.path = []string{"plugin", "appkeys", "request", token}
	}
	return j, nil
}

// Wait polls until there is a decision and answers the key: empty if it was
// denied, or if nobody decided in time, which the server doesn't tell apart.
func (j *Joining) Wait(ctx context.Context) (key string, err error) {
	life, cancel := context.WithTimeout(ctx, joinLife)
	defer cancel()
	tick := time.NewTicker(joinPoll)
	defer tick.Stop()
	for {
		key, decided, err := j.poll(life)
		switch {
		case decided:
			return key, nil
		case ctx.Err() != nil:
			return "", context.Cause(ctx)
		case life.Err() != nil:
			return "", nil
		case err != nil && status(err) != 0 && status(err) < 500:
			return "", err
		}
		// What the network lost now may be there at the next poll.
		select {
		case <-tick.C:
		case <-life.Done():
		}
	}
}

func (j *Joining) poll(ctx context.Context) (key string, decided bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, joinAsk)
	defer cancel()
	q := call{method: http.MethodGet, path: j.path}
	resp, err := j.c.send(ctx, q)
	if err != nil {
		return "", false, err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusAccepted: // no decision yet
		return "", false, nil
	case http.StatusNotFound:
		return "", true, nil
	}
	if err := j.c.failure(resp, q); err != nil {
		return "", false, err
	}
	var answer struct {
		Key string `json:"api_key"`
	}
	if err := j.c.decode(resp, q, &answer); err != nil {
		return "", false, err
	}
	return answer.Key, true, nil
}
