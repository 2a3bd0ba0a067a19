package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"farhand/internal/canary"
	"farhand/llm/llmtest"
)

// Nor do private files leave by what people and agents use: the command and the
// tools for agents, over the relay.
func TestPrivateFilesStayFromPrograms(t *testing.T) {
	t.Parallel()
	seed := uint64(number(t, "FARHAND_TEST_SEED", int(time.Now().UnixNano()&0xffffff)))
	t.Logf("FARHAND_TEST_SEED=%d", seed)
	b := newBench(t)
	c := plant(b, rand.New(rand.NewPCG(seed, 0)))
	service := c.surround()
	b.tables += c.config(llmtest.Start(t, canaryModels...).URL, service)
	relay := b.url
	tap := tapped(t, relay)
	b.url = tap.url
	b.claim(everything + ",local_llm,llm_manage,forward,observe")
	b.url = relay
	b.write(filepath.Join(b.here(), "leaf"), "a file of the operator's")
	b.owner.must("cat", ":control/raw", ":control/named-"+c.name[control])

	secrets := c.secrets()
	quiet := func(what, said string) {
		t.Helper()
		if hits := secrets.Find([]byte(said)); len(hits) > 0 {
			t.Errorf("%s says %v: %.400s", what, hits, said)
		}
	}
	// What is refused says so and tells nothing.
	_, port, _ := strings.Cut(service, ":")
	for _, args := range [][]string{
		{"cat", ":vault/body.txt"}, {"cat", ":public/to-body"}, {"cat", ":public/hard"}, {"cat", ":public/to-vault/people.csv"}, {"cat", ":" + c.at("vault/eight")},
		{"cat", ":notes/deep/a.secret"}, {"cat", ":named/list.csv"}, {"get", ":vault/body.txt", "got"}, {"get", ":vault", "got"}, {"get", ":single.txt", "-"},
		{"cp", ":vault/body.txt", ":copied"}, {"cp", ":vault", ":copied"}, {"cp", ":single.txt", ":public/"}, {"mv", ":vault/body.txt", ":moved"}, {"mv", ":vault", ":moved"},
		{"mv", ":notes", ":moved"}, {"mv", ":deep", ":moved"}, {"put", "leaf", ":vault/body.txt"}, {"put", "leaf", ":vault/leaf"}, {"rm", "-r", ":vault"}, {"rm", "-r", ":notes"},
		{"logs", "bench"}, {"print", "upload", "sim-i3", "bench:vault/body.txt"}, {"print", "upload", "sim-i3", ":public/hard"},
	} {
		r := b.owner.run(append([]string{"--json"}, args...)...)
		if r.code == 0 || !strings.Contains(r.stderr+r.stdout, "PRIVACY_MODE_BLOCKED") {
			t.Errorf("farhand %q gives %+v", args, r)
		}
		quiet(fmt.Sprintf("farhand %q", args), r.stdout+r.stderr)
	}
	for _, args := range [][]string{ // not even offered
		{"exec", "--", "cat", "vault/body.txt"}, {"shell", "--", "cat", "vault/body.txt"}, {"exec", "--cwd", "vault", "--", "ls"},
	} {
		if r := b.owner.run(args...); r.code == 0 {
			t.Errorf("farhand %q gives %+v", args, r)
		} else {
			quiet(fmt.Sprintf("farhand %q", args), r.stdout+r.stderr)
		}
	}
	// What is allowed tells nothing either.
	aliases := 0
	for _, args := range [][]string{
		{"ls", ":vault", "--json"}, {"ls", ":"}, {"ls", ":public", "-l"}, {"ls", ":notes", "--json"}, {"ls", ":named"}, {"stat", ":vault/body.txt"}, {"stat", ":public/hard"},
		{"stub", "bench:vault/people.csv"}, {"stub", "bench:vault/data.json", "bench:named/list.csv", "bench:vault/data.gz", "bench:public/to-body", "--json"},
		{"top", "bench"}, {"devices"}, {"machines", "--json"}, {"events"}, {"sessions"}, {"audit", "verify"}, {"llm", "models"},
		{"llm", "chat", "bench", "--", "What is in vault/body.txt?"},
	} {
		r := b.owner.run(args...)
		if r.code != 0 {
			t.Errorf("farhand %q gives %+v", args, r)
		}
		aliases += strings.Count(r.stdout, "private-")
		quiet(fmt.Sprintf("farhand %q", args), r.stdout+r.stderr)
	}
	if aliases < 10 {
		t.Errorf("only %d aliases were told", aliases)
	}
	// Copying what holds private files copies the rest at most.
	for _, args := range [][]string{{"get", ":public", "copy"}, {"get", ":", "all"}, {"cp", ":public", ":public2"}, {"cp", ":notes", ":notes2"}} {
		r := b.owner.run(args...)
		quiet(fmt.Sprintf("farhand %q", args), r.stdout+r.stderr)
	}
	c.searchCopies(b.here())

	// A real name that is told by nobody else.
	for _, name := range []string{"vault/" + c.name["file name"] + ".txt", "notes/" + c.name["secret's name"] + ".secret", "vault/" + c.name["directory name"] + "/inner.txt"} {
		for _, verb := range []string{"cat", "stat", "stub", "ls", "get"} {
			b.owner.run(verb, "bench:"+name)
		}
	}
	forward := b.owner.start("forward", "bench", "0:127.0.0.1:"+port)
	local := forward.await(0, `^(127\.0\.0\.1:\d+) leads to`)[1]
	if err := roundTrip(local, []byte("GET / HTTP/1.0\r\n\r\n")); err == nil {
		t.Error("a connection to this machine came about")
	}
	forward.await(0, "is this machine, whose services may read what is private")
	forward.stop()

	// The answer of the machine's own model is what may have it.
	r := b.owner.run("ask", "bench", "--file", "vault/body.txt", "--model", "echo:1b", "--", "Repeat it.")
	if r.code != 0 || !strings.Contains(r.stdout, c.name["body"]) {
		t.Errorf("ask gives %+v", r)
	}
	quiet("ask beside its answer", r.stderr)
	for _, model := range []string{"tiny:1b", "think:1b", "quote:1b", "die:1b"} {
		r := b.owner.run("ask", "bench", "--file", "vault/people.csv", "--model", model, "--", "Repeat it.")
		if (r.code == 0) != (model == "tiny:1b" || model == "think:1b") {
			t.Errorf("ask %s gives %+v", model, r)
		}
		quiet("ask "+model, r.stdout+r.stderr)
	}

	c.useTools(secrets)
	c.searchElsewhere()
	if c.search(tap) == 0 {
		t.Error("no turn has answered with what it was told")
	}
	b.wholeAudit()
}

// useTools has an agent try every tool that there is for files.
func (c *canaries) useTools(secrets *canary.Set) {
	c.t.Helper()
	a, _ := c.b.inMemory(c.b.sdk())
	for _, wanted := range []string{"file_stub", "ask_files"} {
		if !slices.Contains(a.names, wanted) {
			c.t.Errorf("there is no tool %s in %q", wanted, a.names)
		}
	}
	for _, gone := range []string{"run_command", "terminal_open"} {
		if slices.Contains(a.names, gone) {
			c.t.Errorf("there is a tool %s, though commands are off", gone)
		}
	}
	here := filepath.Join(c.b.here(), "tool")
	if err := os.Mkdir(here, 0o700); err != nil {
		c.t.Fatal(err)
	}
	blocked := 0
	for _, path := range []string{"vault/body.txt", "vault/people.csv", "public/to-body", "public/hard", "notes/deep/a.secret", "single.txt", "vault", "public/to-vault", "named/list.csv", "."} {
		for tool, args := range map[string]map[string]any{
			"read_file":      {"path": path},
			"list_files":     {"path": path, "recursive": true, "include_hidden": true},
			"file_info":      {"path": path},
			"search_files":   {"path": path, "pattern": c.name["body"][:5], "include_hidden": true},
			"edit_file":      {"path": path, "edits": []map[string]any{{"old_text": "n", "new_text": "m"}}, "dry_run": true},
			"move_file":      {"from": path, "to": "public/of-a-tool"},
			"copy_file":      {"from": path, "to": "public/copied", "create_parents": true},
			"download_file":  {"path": path, "to": filepath.Join(here, "down")},
			"printer_upload": {"device": printer3D, "path": path},
			"file_stub":      {"path": path},
			"ask_files":      {"paths": []string{path}, "task": "Repeat it.", "model": "tiny:1b"},
			"delete_file":    {"path": path + "/nothing"},
		} {
			if !slices.Contains(a.names, tool) {
				if tool != "download_file" { // of the command's own server alone
					c.t.Errorf("there is no tool %s", tool)
				}
				continue
			}
			c.replant() // a link may have been moved
			text, err := json.Marshal(args)
			if err != nil {
				c.t.Fatal(err)
			}
			got, said := a.try(tool, string(text))
			out, err := json.Marshal(got.StructuredContent)
			if err != nil {
				c.t.Fatal(err)
			}
			if strings.HasPrefix(said, "PRIVACY_MODE_BLOCKED") {
				blocked++
			}
			if hits := secrets.Find(append(out, said...)); len(hits) > 0 {
				c.t.Errorf("%s %s answers with %v: %.400s", tool, text, hits, said)
			}
		}
	}
	if blocked < 40 {
		c.t.Errorf("only %d attempts were refused", blocked)
	}
	if _, said := a.try("ask_files", `{"paths":["vault/body.txt"],"task":"Repeat it.","model":"echo:1b"}`); !strings.Contains(said, c.name["body"]) {
		c.t.Errorf("ask_files says %.300s", said)
	}
	c.searchCopies(here)
}
