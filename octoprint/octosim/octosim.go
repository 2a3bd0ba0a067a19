// Package octosim is the simulated bench's 3D printer: the server of octotest
// inside the process, driven by octoprint's own code.
package octosim

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"farhand/device"
	"farhand/octoprint"
	"farhand/octoprint/octotest"
)

// Name is the printer's: its id is printer:sim-i3.
const Name = "sim-i3"

// Bench is the printer, its server and what drives it. Close it when done.
type Bench struct {
	// Servers is the driver and the service.
	*octoprint.Servers
	// Printer is the server, to be watched and disturbed.
	Printer *octotest.Server

	pipe *octotest.Pipe
	http *http.Server
	done chan struct{} // closed when the HTTP server has ended
}

// Options configure a Bench.
type Options struct {
	Files octoprint.Files // what PRINTER_UPLOAD reads; nil: it isn't offered
	Log   *slog.Logger
	// Server is what the server is like.
	Server octotest.Options
}

// New makes a bench: a printer that is connected, with two files.
func New(o Options) (*Bench, error) {
	if o.Server.Key == "" {
		o.Server.Key = "simulated"
	}
	b := &Bench{Printer: octotest.New(o.Server), pipe: octotest.NewPipe(), done: make(chan struct{})}
	b.Printer.Put("local", "benchy.gcode", []byte("; a boat\nG28\nM104 S210\n"))
	b.Printer.Put("local", "parts/bracket.gcode", []byte("; a bracket\nG28\n"))
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	var err error
	b.Servers, err = octoprint.NewServers(octoprint.Options{
		Printers: []octoprint.Printer{{
			Name: Name, Key: o.Server.Key, Desc: "Simulated 3D printer",
			URL: &url.URL{Scheme: "http", Host: Name + ".invalid", Path: o.Server.Prefix},
		}},
		Files: o.Files, Dial: b.pipe.Dial, UserAgent: "farhandd", Log: o.Log,
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("simulated 3D printer: %w", err), b.Printer.Close())
	}
	b.http = &http.Server{Handler: b.Printer, ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug)}
	go func() {
		defer close(b.done)
		_ = b.http.Serve(b.pipe) // ends with ErrServerClosed
	}()
	return b, nil
}

// Family is the bench's, for a device.Registry.
func (b *Bench) Family() device.Family {
	return device.Family{Driver: b.Servers, Service: b.Servers}
}

// Close ends everything. The leases must have ended before.
func (b *Bench) Close() error {
	err := b.Servers.Close()
	err = errors.Join(err, b.pipe.Close(), b.http.Close(), b.Printer.Close())
	<-b.done
	return err
}
