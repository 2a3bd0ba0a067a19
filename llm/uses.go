package llm

import (
	"strings"
	"sync"

	"farhand/wire"
)

// uses keep two things apart that are done with a model: to fetch it, after which
// it may be one that runs elsewhere, and to give it something private, which was
// allowed for what it is now.
type uses struct {
	mu  sync.Mutex
	all map[string]int // by base: how many private, if positive, or fetching, if negative
}

type use int

const (
	private  use = 1
	fetching use = -1
)

// enter begins a use, which lasts until leave. It fails with LOCAL_LLM_BUSY while
// there is one of the other kind.
func (u *uses) enter(model string, what use) (leave func(), err error) {
	name := base(model)
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.all == nil {
		u.all = make(map[string]int)
	}
	switch n := u.all[name]; {
	case n > 0 && what == fetching:
		return nil, wire.Errorf(wire.LocalLLMBusy, "the model works on private files, and can't be fetched meanwhile").With("reason", "private")
	case n < 0 && what == private:
		return nil, wire.Errorf(wire.LocalLLMBusy, "the model is being fetched, and gets no private files meanwhile").With("reason", "fetching")
	}
	u.all[name] += int(what)
	return func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		if u.all[name] -= int(what); u.all[name] == 0 {
			delete(u.all, name)
		}
	}, nil
}

// base is the part of a model's name that all its spellings have: a server fills in
// where it is from, whose it is and the tag, and disregards case.
func base(model string) string {
	name := strings.ToLower(model[strings.LastIndexByte(model, '/')+1:])
	name, _, _ = strings.Cut(name, "@")
	name, _, _ = strings.Cut(name, ":")
	return name
}
