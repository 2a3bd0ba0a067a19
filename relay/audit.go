package relay

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"

	"farhand/audit"
	"farhand/internal/version"
	"farhand/relay/acts"
	"farhand/relay/oauth"
	"farhand/wire"
)

// auditName stands for the relay where a device's log has its machine id.
const auditName = "farhand-relay"

// AuditPaths are the audit log of a data directory and its key, for
// audit.Verify.
func AuditPaths(dataDir string) (log, key string) {
	return filepath.Join(dataDir, "audit.log"), filepath.Join(dataDir, "audit.key")
}

func openAudit(dataDir string, log *slog.Logger) (*audit.Log, []byte, error) {
	path, keyPath := AuditPaths(dataDir)
	key, err := audit.LoadKey(keyPath)
	if err != nil {
		return nil, nil, fmt.Errorf("relay: %w", err)
	}
	l, err := audit.Open(audit.Options{Path: path, Key: key, MachineID: auditName, ShimVersion: version.String(), Log: log})
	return l, key, err
}

// recorder writes the authority's events to the audit log, to that of the owner
// whom they concern, and for whoever reads it to the ordinary one.
func recorder(l *audit.Log, book *acts.Book, log *slog.Logger) func(oauth.Event) error {
	return func(e oauth.Event) error {
		var details []audit.Field
		attrs := []slog.Attr{slog.String("op", e.Op), slog.Bool("refused", e.Refused)}
		for _, f := range []struct{ key, value string }{
			{"owner", e.Owner}, {"holder", e.Holder}, {"machine_id", e.Machine}, {"family", e.Family},
			{"subject", e.Subject}, {"address", e.Address}, {"reason", e.Reason},
		} {
			if f.value != "" {
				details = append(details, audit.String(f.key, f.value))
				attrs = append(attrs, slog.String(f.key, f.value))
			}
		}
		log.LogAttrs(context.Background(), slog.LevelInfo, "event", attrs...)
		if err := l.Append(audit.Entry{Op: e.Op, Details: details, Result: audit.Result{OK: !e.Refused}}); err != nil || e.Owner == "" {
			return err
		}
		return book.Append(ownersAct(e))
	}
}

// refused is the code of an event that was asked for and refused.
const refused wire.Code = "REFUSED"

// ownersAct is an event as its owner reads it.
func ownersAct(e oauth.Event) acts.Act {
	a := acts.Act{Owner: e.Owner, Holder: e.Holder, Machine: e.Machine, Op: e.Op}
	if e.Refused {
		a.Code = refused
	}
	for _, f := range []struct{ key, value string }{{"subject", e.Subject}, {"address", e.Address}, {"reason", e.Reason}} {
		if f.value != "" {
			a.More = append(a.More, audit.String(f.key, f.value))
		}
	}
	return a
}
