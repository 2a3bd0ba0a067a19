package octoprint_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"farhand/device"
	"farhand/internal/faketime"
	"farhand/internal/leak"
	"farhand/octoprint"
	"farhand/octoprint/octoprinttest"
	"farhand/octoprint/octotest"
)

// bench is a printer behind a server.
type bench struct {
	*octoprinttest.Rig
	server  *octotest.Server
	servers *octoprint.Servers
	state   string // directory
}

// serve starts a server on the loopback interface and what drives it; change, if
// not nil, changes the driver's options.
func serve(t testing.TB, o octotest.Options, change func(*octoprint.Options)) *bench {
	t.Helper()
	leak.Check(t)
	b := &bench{server: octotest.New(o), state: t.TempDir()}
	web := httptest.NewServer(b.server)
	base, err := url.Parse(web.URL + o.Prefix)
	if err != nil {
		t.Fatal(err)
	}
	b.drive(t, base, change)
	t.Cleanup(func() {
		if err := b.servers.Close(); err != nil {
			t.Error(err)
		}
		web.CloseClientConnections()
		web.Close()
		b.server.Close()
	})
	b.Rig = octoprinttest.NewRig(t, b.Bench)
	return b
}

func (b *bench) drive(t testing.TB, base *url.URL, change func(*octoprint.Options)) {
	t.Helper()
	files := &octoprinttest.Files{}
	opts := octoprint.Options{Printers: []octoprint.Printer{{Name: "mk4", URL: base, Key: "secret"}}, StateDir: b.state, Files: files, App: "farhand on bench"}
	if change != nil {
		change(&opts)
	}
	var err error
	if b.servers, err = octoprint.NewServers(opts); err != nil {
		t.Fatal(err)
	}
	b.Rig = &octoprinttest.Rig{Bench: octoprinttest.Bench{Family: device.Family{Driver: b.servers, Service: b.servers}, ID: "printer:mk4", Files: files}}
}

// bubble runs a test with a fake clock, against a server in the process.
func bubble(t *testing.T, o octotest.Options, change func(*octoprint.Options), run func(*testing.T, *bench)) {
	state := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{server: octotest.New(o), state: state}
		pipe := octotest.NewPipe()
		web := &http.Server{Handler: b.server}
		done := make(chan struct{})
		go func() {
			defer close(done)
			if err := web.Serve(pipe); err != http.ErrServerClosed && err != net.ErrClosed {
				t.Error(err)
			}
		}()
		b.drive(t, &url.URL{Scheme: "http", Host: "printer.invalid", Path: o.Prefix}, func(opts *octoprint.Options) {
			opts.Dial = pipe.Dial
			if change != nil {
				change(opts)
			}
		})
		t.Cleanup(func() {
			if err := b.servers.Close(); err != nil {
				t.Error(err)
			}
			pipe.Close()
			web.Close()
			<-done
			b.server.Close()
			faketime.Advance(time.Second) // net/http lingers half a second on a connection that it cuts
		})
		b.Rig = octoprinttest.NewRig(t, b.Bench)
		run(t, b)
	})
}
