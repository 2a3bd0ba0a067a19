package oauth

import (
	"strings"
	"sync"
	"time"

	"farhand/relay/access"
)

// maxCached bounds the cache: more devices and operators than one host serves.
const maxCached = 1 << 15

// cache remembers what tokens stood for when they were last looked up, so that
// a reconnect storm costs hashing alone. An entry is forgotten in the same step
// as its record changes; generation keeps a look-up that began before a change
// from being remembered after it.
type cache struct {
	mu         sync.Mutex
	generation uint64
	off        bool
	entries    map[secretHash]cached
	byRecord   map[string]map[secretHash]struct{} // owner/id -> its entries
}

type cached struct {
	record   string
	expires  time.Time // zero: never
	device   access.Device
	operator access.Operator
}

func newCache() *cache {
	return &cache{entries: make(map[secretHash]cached), byRecord: make(map[string]map[secretHash]struct{})}
}

// begin is called before the store is read; its result goes to put.
func (c *cache) begin() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.generation
}

func (c *cache) get(h secretHash) (cached, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.entries[h]
	if !ok || (!e.expires.IsZero() && !time.Now().Before(e.expires)) {
		return cached{}, false
	}
	return e, true
}

func (c *cache) put(begun uint64, owner, id string, h secretHash, e cached) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.off || begun != c.generation {
		return
	}
	if len(c.entries) >= maxCached {
		for old := range c.entries { // any will do: it is only looked up again
			c.drop(old)
			break
		}
	}
	e.record = owner + "/" + id
	c.entries[h] = e
	hashes := c.byRecord[e.record]
	if hashes == nil {
		hashes = make(map[secretHash]struct{})
		c.byRecord[e.record] = hashes
	}
	hashes[h] = struct{}{}
}

func (c *cache) drop(h secretHash) {
	e, ok := c.entries[h]
	if !ok {
		return
	}
	delete(c.entries, h)
	delete(c.byRecord[e.record], h)
	if len(c.byRecord[e.record]) == 0 {
		delete(c.byRecord, e.record)
	}
}

// forget drops everything that came from a record, also what is being looked up.
func (c *cache) forget(owner, id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.generation++
	for h := range c.byRecord[owner+"/"+id] {
		c.drop(h)
	}
}

// changed is told the key of a record that somebody changed.
func (c *cache) changed(key string) {
	parts := strings.Split(key, ".")
	if len(parts) != 4 {
		return
	}
	switch parts[2] {
	case "family", "login", "token", kindAgent:
		c.forget(parts[1], parts[3])
	}
}

// disable makes every look-up read the store: changes are no longer heard of.
func (c *cache) disable() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.off = true
	clear(c.entries)
	clear(c.byRecord)
}
