package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"farhand/e2e/boot/guest"
	"farhand/wire"
)

// testModel is what stands for Ollama, beside the programs for the boards.
const testModel = "farhand-testmodel"

// ollama is put on a machine by its owner, updated, not updated by a version that
// falls over, and removed; unless the image brought one.
func (d *device) ollama(ctx context.Context) error {
	if there, err := d.sh(ctx, "[ -e /data/ollama/current ] && echo there || true"); err != nil || there != "" {
		return err
	}
	// The card names no local model; the daemon is told to offer one all the same.
	if _, err := d.root(ctx, `mkdir -p /run/systemd/system/farhandd.service.d
printf '[Service]\nEnvironment=FARHAND_LLM_ENABLED=true\n' >/run/systemd/system/farhandd.service.d/llm.conf
systemctl daemon-reload; systemctl restart --no-block farhandd`); err != nil {
		return err
	}
	if err := d.poll(ctx, time.Second, "the daemon offers no local model", func() (bool, error) {
		m, err := d.bench.machine(ctx, d.host)
		return m != nil && m.Online && m.Capabilities.Has(wire.LLMManage), err
	}); err != nil {
		return err
	}
	if _, err := d.farhand(ctx, 1, "grants", "--add", "local_llm,llm_manage"); err != nil {
		return err
	}
	if err := d.serves(ctx, wire.LLMNotInstalled); err != nil {
		return err
	}
	for _, version := range []string{"first", "second"} {
		if err := d.install(ctx, "lib/"+version); err != nil {
			return err
		}
		if err := d.serves(ctx, wire.LLMNoModel); err != nil {
			return err
		}
		if err := d.lies(ctx, "lib/"+version); err != nil {
			return err
		}
	}
	if err := d.install(ctx, "lib/broken"); err == nil || !strings.Contains(err.Error(), "doesn't stay up") {
		return unlike(err, "a version that falls over is installed")
	}
	if err := d.poll(ctx, time.Second, "the version of before doesn't run again", func() (bool, error) {
		err := d.serves(ctx, wire.LLMNoModel)
		return err == nil, err
	}); err != nil {
		return err
	}
	if err := d.lies(ctx, "lib/second"); err != nil {
		return err
	}
	if _, err := d.farhand(ctx, 2, "llm", "uninstall", "--models"); err != nil {
		return err
	}
	if err := d.serves(ctx, wire.LLMNotInstalled); err != nil {
		return err
	}
	out, err := d.root(ctx, "ls -A /data/ollama /data/ollama/*; systemctl show -P ActiveState ollama; rm /run/systemd/system/farhandd.service.d/llm.conf")
	if left := strings.Join(strings.Fields(out), " "); err != nil || left != "/data/ollama: home models versions /data/ollama/home: /data/ollama/models: /data/ollama/versions: inactive" {
		return unlike(err, "what is left is %q", left)
	}
	return nil
}

// arch is for which processors programs are there.
func (d *device) arch() string {
	if d.kind == guest.PC {
		return "amd64"
	}
	return "arm64"
}

// install installs a version with one more file in it.
func (d *device) install(ctx context.Context, file string) error {
	program, err := os.ReadFile(filepath.Join(d.bench.bin, "linux-"+d.arch(), testModel))
	if err != nil {
		return err
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for name, content := range map[string][]byte{"bin/ollama": program, file: []byte("x")} {
		err = errors.Join(err, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "./" + name, Mode: 0o755, Size: int64(len(content))}))
		_, e := w.Write(content)
		err = errors.Join(err, e)
	}
	name := filepath.Join(d.dir, "ollama.tgz")
	if err := errors.Join(err, w.Close(), z.Close(), os.WriteFile(name, b.Bytes(), 0o600)); err != nil {
		return err
	}
	_, err = d.farhand(ctx, 2, "llm", "install", "--from", name)
	return err
}

// serves asks what serves models there.
func (d *device) serves(ctx context.Context, state string) error {
	out, err := d.farhand(ctx, 2, "llm", "ps", "--json")
	var is struct{ State, Version string }
	if err == nil {
		err = json.Unmarshal([]byte(out), &is)
	}
	if err != nil || is.State != state || (is.Version != "") != (state == wire.LLMNoModel) {
		return unlike(err, "the machine says %s of its models, not %s", out, state)
	}
	return nil
}

// lies looks how it lies there, and as whom it runs.
func (d *device) lies(ctx context.Context, file string) error {
	out, err := d.root(ctx, `cd /data/ollama; ls versions | wc -l; ps -o user= -p $(systemctl show -P MainPID ollama)
stat -c %U:%G:%a current/bin/ollama current/`+file+` models; ls -A /data/work | grep -c ollama || true`)
	if is := strings.Join(strings.Fields(out), " "); err != nil || is != "1 ollama root:root:755 root:root:755 ollama:ollama:700 0" {
		return unlike(err, "Ollama lies there as %q", is)
	}
	return nil
}
