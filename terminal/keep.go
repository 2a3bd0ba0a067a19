package terminal

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"farhand/internal/atomicfile"
	"farhand/stream"
	"farhand/wire"
)

// Keep is what terminals outlive the process by.
type Keep struct {
	// Store keeps descriptors beyond the life of this process, and Restored are
	// those that an earlier one left there, by name.
	Store    Store
	Restored map[string]*os.File
	// Adopt is the program that an earlier process started, by the descriptor that
	// it gave for it (see Kept).
	Adopt func(*os.File) (Program, error)
}

// Store keeps descriptors, those too that hang up meanwhile.
type Store interface {
	Keep(name string, fd uintptr) error
	Remove(name string) error
}

// Kept is a Program that another process can go on with: it isn't our child.
type Kept interface {
	Program
	// Descriptor does something with what stands for the program.
	Descriptor(do func(fd uintptr) error) error
	// Leave lets go of it. Reap isn't called then.
	Leave()
}

// StorePrefix is that of the names of our descriptors in the Store: it is followed
// by the terminal's id, a dash and what it is.
const StorePrefix = "terminal-"

// keep has the terminal outlive this process, if that can be.
func (t *terminal) keep() {
	k := t.s.o.Keep
	p, ok := t.p.(Kept)
	if k == nil || k.Store == nil || !ok {
		return
	}
	if err := t.store(k.Store, p); err != nil {
		t.s.o.Log.Warn("a terminal won't outlive the daemon", "terminal", t.id, "err", err)
		t.unstore()
	}
}

func (t *terminal) store(to Store, p Kept) error {
	f, err := newJournalFile()
	if err != nil {
		return err
	}
	if t.journal, err = openJournal(f, true); err != nil {
		return err
	}
	t.kept = true
	files := t.descriptors()
	files["log"] = f
	for what, f := range files {
		if err := control(f, func(fd int) error { return to.Keep(t.stored(what), uintptr(fd)) }); err != nil {
			return err
		}
	}
	return p.Descriptor(func(fd uintptr) error { return to.Keep(t.stored("run"), fd) })
}

func (t *terminal) stored(what string) string { return StorePrefix + t.id + "-" + what }

// unstore takes it out of the store: it ends, or wouldn't be whole.
func (t *terminal) unstore() {
	if !t.kept {
		return
	}
	t.kept = false
	for _, what := range []string{"pty", "in", "out", "err", "log", "run"} {
		t.remove(what)
	}
}

func (t *terminal) remove(what string) {
	if err := t.s.o.Keep.Store.Remove(t.stored(what)); err != nil {
		t.s.o.Log.Warn("a terminal stays in the descriptor store", "terminal", t.id, "err", err)
	}
}

// letGo leaves a kept terminal to the next process.
func (t *terminal) letGo() {
	if p, ok := t.p.(Kept); ok {
		p.Leave()
	}
	t.closeEnds()
	t.journal.close()
}

// saved is what stands of a terminal in the file.
type saved struct {
	ID       string       `json:"id"`
	Owner    stream.Owner `json:"owner"`
	Program  string       `json:"program"`
	PTY      bool         `json:"pty"`
	Columns  int          `json:"columns"`
	Rows     int          `json:"rows"`
	Cwd      string       `json:"cwd"`
	OpenedAt time.Time    `json:"opened_at"`
}

type savedFile struct {
	Version   int     `json:"version"` // 1
	Terminals []saved `json:"terminals"`
}

// maxSaved bounds the file.
const maxSaved = 1 << 20

// save writes which terminals run. That it can't is no reason to refuse one: only
// the next start knows less.
func (s *Service) save() {
	if s.o.Path == "" {
		return
	}
	s.saving.Lock()
	defer s.saving.Unlock()
	f := savedFile{Version: 1, Terminals: []saved{}}
	for _, t := range s.terminals() {
		if t.started() && t.ended() == nil {
			t.mu.Lock()
			f.Terminals = append(f.Terminals, saved{t.id, t.owner, t.program, t.pty, t.size.columns, t.size.rows, t.cwd, t.opened})
			t.mu.Unlock()
		}
	}
	data, err := json.Marshal(f)
	if err == nil {
		err = atomicfile.Write(s.o.Path, data, 0o600)
	}
	if err != nil {
		s.o.Log.Warn("the next start won't know of all terminals", "err", err)
	}
}

// recover takes over what an earlier process left, and lists what went with it.
func (s *Service) recover() error {
	var restored map[string]*os.File
	if s.o.Keep != nil {
		restored = s.o.Keep.Restored
	}
	f, err := s.load()
	for _, x := range f.Terminals {
		if x.ID == "" || s.all[x.ID] != nil {
			continue
		}
		t := makeTerminal(s, x.ID)
		t.owner, t.program, t.pty, t.cwd, t.opened, t.size, t.begun = x.Owner, x.Program, x.PTY, x.Cwd, x.OpenedAt, size{x.Columns, x.Rows}, true
		if err := t.share(); err != nil {
			continue
		}
		if why := t.adopt(restored); why != nil {
			s.o.Log.Info("a terminal ended with the daemon", "terminal", t.id, "why", why)
			t.finish = &wire.TerminalEnd{StreamEnd: wire.StreamEnd{Reason: wire.TerminalRestarted}, At: time.Now()}
			t.endOutput(wire.TerminalRestarted, nil)
			close(t.over)
			s.o.OnEnd(Ended{ID: t.id, Session: t.owner.Session, Reason: wire.TerminalRestarted, Lasted: time.Since(t.opened)})
		} else {
			s.running.Go(t.run)
		}
		s.all[t.id] = t
		s.order = append(s.order, t)
	}
	sortByAge(s.order)
	for name, f := range restored {
		if strings.HasPrefix(name, StorePrefix) { // nobody knows it any more
			f.Close()
			err = errors.Join(err, s.o.Keep.Store.Remove(name))
			delete(restored, name)
		}
	}
	if len(f.Terminals) > 0 {
		s.save()
	}
	return err
}

func (s *Service) load() (savedFile, error) {
	var f savedFile
	if s.o.Path == "" {
		return f, nil
	}
	data, err := atomicfile.Read(s.o.Path, maxSaved)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &f)
	}
	if err != nil {
		return savedFile{}, fmt.Errorf("terminals of an earlier start: %w", err)
	}
	return f, nil
}

// end is a file as an End, and none as none.
func end(f *os.File) End {
	if f == nil {
		return nil
	}
	return f
}

// adopt goes on with a terminal by its descriptors. An error says what is missing;
// then nothing of it is left.
func (t *terminal) adopt(restored map[string]*os.File) (err error) {
	take := func(what string) *os.File {
		f := restored[t.stored(what)]
		if f == nil && err == nil {
			err = fmt.Errorf("its %s wasn't kept", what)
		}
		delete(restored, t.stored(what))
		return f
	}
	log, run := take("log"), take("run")
	if t.pty {
		t.outEnd = end(take("pty"))
		t.in = t.outEnd
	} else {
		t.in, t.outEnd, t.errEnd = end(restored[t.stored("in")]), end(take("out")), end(take("err"))
		delete(restored, t.stored("in"))
		if t.in == nil { // it was closed
			t.in = gone{}
		}
	}
	defer func() {
		if err != nil {
			t.kept = t.s.o.Keep != nil // in parts
			t.unstore()
			t.journal.close()
			t.journal = nil
			for _, f := range []*os.File{log, run} {
				if f != nil {
					f.Close() // may be closed already
				}
			}
			t.closeEnds()
			t.ends = ends{in: gone{}}
		}
	}()
	if err != nil {
		return err
	}
	t.kept = true
	if t.journal, err = openJournal(log, false); err == nil {
		err = t.journal.restore(0, t.out)
	}
	if err == nil && t.err != nil {
		err = t.journal.restore(1, t.err)
	}
	if err == nil {
		t.p, err = t.s.o.Keep.Adopt(run)
	}
	if err != nil {
		return err
	}
	t.keyboard.writers = t.journal.writers()
	return nil
}
