package main

import (
	"fmt"
	"log/slog"
	"net/netip"
	"strings"

	"github.com/spf13/cobra"

	"farhand/internal/version"
	"farhand/relay"
	"farhand/relay/limit"
	"farhand/systemd"
)

func (a *app) run() *cobra.Command {
	rates := limit.Default
	cfg := relay.Config{Limits: &rates}
	var proxies []string
	var verbose, agents bool
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Be the relay until told to stop",
		Long: `run serves machines and operators. As long as there is no owner, each start
prints a one-time link and token to set up the first.

Without a certificate it listens on loopback only, in plain HTTP. With one, made
by init or given by --tls-cert and --tls-key, it speaks TLS. Behind a proxy on
this host that speaks TLS, give --public-url https://… and --trusted-proxies
127.0.0.1,::1.

With --nats it is one instance of several: any of them serves any machine and any
operator, and one that dies is replaced by the others. docs/relay-cluster.md has
how to run three.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.needDataDir(); err != nil {
				return err
			}
			var err error
			if cfg.TrustedProxies, err = prefixes(proxies); err != nil {
				return err
			}
			level := slog.LevelInfo
			if verbose {
				level = slog.LevelDebug
			}
			cfg.DataDir, cfg.Log = a.dataDir, a.logger(level)
			if agents {
				cfg.Agents = func(inside relay.Dialer, instance string) relay.Agents { return serveAgents(inside, instance, cfg.Log) }
			}
			r, err := relay.New(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			if err := a.announce(r); err != nil {
				cfg.Log.Warn("nobody reads what is announced", "err", err.Error())
			}
			manager := systemd.Notifier{Active: a.getenv("NOTIFY_SOCKET") != "", Log: cfg.Log}
			manager.Ready("serving " + r.URL())
			err = r.Run(cmd.Context())
			manager.Stopping()
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&cfg.Listen, "listen", relay.DefaultListen, "address and port to listen on")
	f.StringVar(&cfg.MetricsListen, "metrics-listen", "", "address and port of GET /metrics for Prometheus, open to whoever can connect, such as 127.0.0.1:9464 (default: none)")
	f.StringVar(&cfg.Instance, "instance", "", "what this relay is called in its metrics (default: the host's name)")
	f.StringVar(&cfg.PublicURL, "public-url", "", "where the relay is reached (default: the certificate's name, else the loopback address)")
	f.StringVar(&cfg.TLSCert, "tls-cert", "", "certificate chain, PEM (default: what init made)")
	f.StringVar(&cfg.TLSKey, "tls-key", "", "its key, PEM")
	f.StringSliceVar(&proxies, "trusted-proxies", nil, "addresses or networks whose X-Forwarded-For is believed")
	f.Float64Var(&rates.Calls, "max-calls", rates.Calls, "calls of the API that one login or token may make in a second on average; 0: any number")
	f.Float64Var(&rates.Requests, "max-requests", rates.Requests, "requests that one login or token may send in a second on average; 0: any number")
	f.StringVar(&cfg.Cluster.URL, "nats", "", "be one instance of several, over these NATS servers (nats://host:4222,…)")
	f.StringVar(&cfg.Cluster.Name, "cluster", "", "name of the cluster on the NATS servers (default farhand)")
	f.StringVar(&cfg.Cluster.Credentials, "nats-creds", "", "credentials file for NATS, or one with an nkey seed")
	f.StringVar(&cfg.Cluster.CA, "nats-ca", "", "CA certificates of the NATS servers, PEM (default: the system's)")
	f.StringVar(&cfg.Cluster.Cert, "nats-cert", "", "certificate to show to the NATS servers, PEM")
	f.StringVar(&cfg.Cluster.Key, "nats-key", "", "its key, PEM")
	f.IntVar(&cfg.Cluster.Replicas, "nats-replicas", 0, "how many NATS servers keep the state (default: 3 where there are as many)")
	f.BoolVar(&agents, "mcp", true, "let agents in at /mcp (Model Context Protocol), once an owner allowed them on a page")
	f.BoolVarP(&verbose, "verbose", "v", false, "log more")
	return cmd
}

// announce prints where the relay is and, until there is an owner, the setup
// link. It goes to stdout, not into the log.
func (a *app) announce(r *relay.Relay) error {
	if !a.json {
		return r.Announce(a.stdout)
	}
	v := map[string]any{"url": r.URL(), "version": version.String()}
	if sum := r.CASHA256(); sum != "" {
		v["ca_sha256"] = sum
	}
	if s := r.FirstSetup(); s != nil {
		v["setup_link"], v["setup_token"] = s.Link, s.Token
	}
	return a.print(v, "")
}

func prefixes(list []string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, text := range list {
		text = strings.TrimSpace(text)
		if addr, err := netip.ParseAddr(text); err == nil {
			out = append(out, netip.PrefixFrom(addr, addr.BitLen()))
			continue
		}
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, usageError{fmt.Errorf("--trusted-proxies: %w", err)}
		}
		out = append(out, p.Masked())
	}
	return out, nil
}
