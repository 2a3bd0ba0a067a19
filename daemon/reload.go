package daemon

import (
	"context"
	"slices"
	"strings"
)

// applied are the keys whose new value a reload puts to use. All others are said
// to need a restart, which sessions and held outputs outlive.
var applied = []string{"log_level"}

// reloadWhenAsked reads the configuration again at each hang-up, until ctx ends.
func (d *daemon) reloadWhenAsked(ctx context.Context) {
	if d.opts.Load == nil {
		return
	}
	select {
	case <-d.ready: // a start isn't over because of a reload
	case <-ctx.Done():
		return
	}
	for {
		select {
		case <-d.opts.Hangups:
			d.reload()
		case <-ctx.Done():
			return
		}
	}
}

// reload reads the configuration again. One that can't be used changes nothing.
func (d *daemon) reload() {
	d.notify.Reloading()
	c, err := d.opts.Load()
	if err != nil {
		d.log.Error("the configuration can't be used and was left as it is", "error", err)
	} else {
		d.log.Info("the configuration was read again")
		d.opts.Level.Set(c.LogLevel)
		unapplied := slices.DeleteFunc(d.config.Changed(c), func(key string) bool { return slices.Contains(applied, key) })
		if len(unapplied) > 0 {
			d.log.Warn(needsRestart(unapplied))
		}
		d.mu.Lock()
		d.unapplied = unapplied
		d.mu.Unlock()
	}
	d.mu.Lock()
	line := string(d.state)
	if d.detail != "" {
		line += ": " + d.detail
	}
	if len(d.unapplied) > 0 {
		line += "; " + needsRestart(d.unapplied)
	}
	d.mu.Unlock()
	d.notify.Ready(line)
}

func needsRestart(keys []string) string {
	return "changed in the configuration, but only a restart puts it to use: " + strings.Join(keys, ", ")
}
