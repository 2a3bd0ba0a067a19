package octoprint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"farhand/internal/atomicfile"
)

const (
	storeName = "printers.json"
	maxStore  = 4 << 20
	// maxSent bounds the remembered names of one printer; the oldest go.
	maxSent = 500
)

// store is what outlives the process: the keys that owners granted, names that
// servers changed, and heaters that are to be switched off. Only the daemon's
// user may read it.
type store struct {
	path string // empty: in memory alone
	mu   sync.Mutex
	data map[string]*record // by the printer's name
}

// record is one printer's part. It belongs to one address: another printer that
// takes over the name must not get this one's key.
type record struct {
	URL string `json:"url"`
	Key string `json:"api_key,omitempty"`
	// Sent says under which name a file was sent that the server calls by
	// another, oldest first.
	Sent []sentName `json:"sent,omitempty"`
	// Hot are the heaters that a session switched on and that go off when its
	// lease ends.
	Hot []string `json:"hot,omitempty"`
}

type sentName struct {
	Location string `json:"location"`
	Path     string `json:"path"`
	Name     string `json:"name"`
}

// openStore reads the file. One that can't be read is left where it is and
// counts as empty, until something has to be written.
func openStore(dir string, log *slog.Logger) *store {
	s := &store{data: make(map[string]*record)}
	if dir == "" {
		return s
	}
	s.path = filepath.Join(dir, storeName)
	data, err := readStore(s.path)
	if err != nil {
		log.Error("what was known of printers is lost: ask for their keys again (PRINTER_JOIN)", "file", s.path, "error", err)
		return s
	}
	maps.DeleteFunc(data, func(_ string, r *record) bool { return r == nil })
	if data != nil {
		s.data = data
	}
	return s
}

func readStore(path string) (map[string]*record, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxStore {
		return nil, fmt.Errorf("not a regular file of at most %d bytes", maxStore)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var data map[string]*record
	return data, json.Unmarshal(b, &data)
}

// change changes a printer's record and makes it durable.
func (s *store) change(name, url string, fn func(*record)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.data[name]
	if r == nil || r.URL != url {
		r = &record{URL: url}
		s.data[name] = r
	}
	fn(r)
	if s.path == "" {
		return nil
	}
	b, err := json.MarshalIndent(s.data, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding what is known of printers: %w", err)
	}
	return atomicfile.Write(s.path, append(b, '\n'), 0o600)
}

// get is a copy of a printer's record.
func (s *store) get(name, url string) record {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.data[name]
	if r == nil || r.URL != url {
		return record{URL: url}
	}
	c := *r
	c.Sent, c.Hot = slices.Clone(r.Sent), slices.Clone(r.Hot)
	return c
}

// remember notes under which name a file was sent.
func (r *record) remember(location, path, name string) {
	r.forget(location, path)
	r.Sent = append(r.Sent, sentName{location, path, name})
	r.Sent = r.Sent[max(0, len(r.Sent)-maxSent):]
}

func (r *record) forget(location, path string) {
	r.Sent = slices.DeleteFunc(r.Sent, func(s sentName) bool { return s.Location == location && s.Path == path })
}
