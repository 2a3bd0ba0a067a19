package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/nats-io/nats.go"

	"farhand/relay/cluster"
	"farhand/relay/events"
	"farhand/relay/events/natsfeed"
	"farhand/relay/store"
	"farhand/relay/store/natskv"
)

// defaultCluster is the name of a cluster that is given none.
const defaultCluster = "farhand"

// Cluster says by which NATS servers the instances of a relay share their state
// and reach each other. Whoever may connect to these servers with this account
// can do all that a relay can, so it should be an account of the relay's own.
type Cluster struct {
	// URL is one or more addresses of NATS servers, separated by commas:
	// nats://host:4222, tls://host:4222. Empty: the relay is on its own.
	URL string
	// Name keeps relays apart that use the same account: letters, digits, "-",
	// "_". Empty: farhand.
	Name string
	// Credentials is a file with a NATS user's JWT and seed, or with a bare nkey
	// seed. Empty: none, or a name and password in URL.
	Credentials string
	// CA is a PEM file that the servers' certificate is checked against instead of
	// the system's roots; Cert and Key are this instance's own, for servers that
	// ask for one.
	CA, Cert, Key string
	// Replicas is how many NATS servers keep the state, 1 to 5. Zero: three where
	// there are as many.
	Replicas int
}

// openStore opens what keeps the relay's state: a file of its own, or the
// cluster's.
func (r *Relay) openStore(ctx context.Context) error {
	c := r.cfg.Cluster
	if c.URL == "" {
		db, err := store.OpenBolt(filepath.Join(r.cfg.DataDir, "relay.db"))
		if err != nil {
			return err
		}
		r.store = db
		return nil
	}
	name := c.name()
	if store.Token(name) != name {
		return fmt.Errorf("cluster name %q: letters, digits, - and _ alone: %w", name, ErrConfig)
	}
	if c.Replicas < 0 || c.Replicas > 5 {
		return fmt.Errorf("%d replicas: NATS takes 1 to 5: %w", c.Replicas, ErrConfig)
	}
	options, err := c.options()
	if err != nil {
		return err
	}
	if r.nats, err = cluster.Connect(c.URL, r.log, options...); err != nil {
		return err
	}
	kv, err := natskv.Open(ctx, r.nats, natskv.Options{Bucket: name, Replicas: c.Replicas})
	if errors.Is(err, natskv.ErrUnfit) {
		return fmt.Errorf("%w: %w", err, ErrConfig)
	}
	if err != nil {
		return err
	}
	r.store, r.replicas = kv, kv.Replicas()
	if kv.Replicas() < 3 {
		r.log.Warn("the state has fewer than three copies: it is lost, or can't be reached, with a single NATS server", "replicas", kv.Replicas())
	}
	if r.node, err = cluster.Join(r.nats, cluster.Options{Name: name, Log: r.log}); err != nil {
		return err
	}
	r.log.Info("one instance of a cluster", "cluster", name, "instance", r.node.ID(), "server", r.nats.ConnectedUrlRedacted())
	return nil
}

// openFeed opens what keeps the owners' events: memory, or the cluster's stream.
func (r *Relay) openFeed(ctx context.Context) (events.Feed, error) {
	if r.nats == nil {
		return events.New(), nil
	}
	feed, err := natsfeed.Open(ctx, r.nats, natsfeed.Options{Name: r.cfg.Cluster.name(), Replicas: r.replicas, Log: r.log})
	if err != nil {
		return nil, err
	}
	r.feed = feed
	return feed, nil
}

func (c Cluster) name() string { return cmp.Or(c.Name, defaultCluster) }

// clusterName is empty for a relay on its own.
func (r *Relay) clusterName() string {
	if r.nats == nil {
		return ""
	}
	return r.cfg.Cluster.name()
}

func (c Cluster) options() ([]nats.Option, error) {
	var options []nats.Option
	if (c.Cert == "") != (c.Key == "") {
		return nil, fmt.Errorf("a certificate for NATS and its key are given together: %w", ErrConfig)
	}
	if c.Cert != "" {
		options = append(options, nats.ClientCert(c.Cert, c.Key))
	}
	if c.CA != "" {
		options = append(options, nats.RootCAs(c.CA))
	}
	if c.Credentials != "" {
		if nkey, err := nats.NkeyOptionFromSeed(c.Credentials); err == nil {
			options = append(options, nkey)
		} else {
			options = append(options, nats.UserCredentials(c.Credentials))
		}
	}
	return options, nil
}
