package store

import (
	"context"
	"errors"
	"strings"
	"sync"
)

// watcher collects the keys that changed since its reader last looked. Only
// keys wait, and each once, so a slow reader costs no more than the key space
// below its prefix.
type watcher struct {
	prefix string
	mu     sync.Mutex
	order  []string
	queued map[string]struct{}
	wake   chan struct{} // capacity 1
}

// Watch implements Store.
func (b *Bolt) Watch(ctx context.Context, prefix string) (<-chan Event, error) {
	if err := b.usable(ctx, CheckPrefix(prefix)); err != nil {
		return nil, err
	}
	w := &watcher{prefix: prefix, queued: make(map[string]struct{}), wake: make(chan struct{}, 1)}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, ErrClosed
	}
	b.watchers[w] = struct{}{}
	out := make(chan Event)
	b.done.Go(func() {
		defer close(out)
		b.deliver(ctx, w, out)
		b.mu.Lock()
		delete(b.watchers, w)
		b.mu.Unlock()
	})
	return out, nil
}

// tell notes changed keys with every watcher that asked for them.
func (b *Bolt) tell(keys []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for w := range b.watchers {
		w.note(keys)
	}
}

func (w *watcher) note(keys []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, k := range keys {
		if !strings.HasPrefix(k, w.prefix) {
			continue
		}
		if _, ok := w.queued[k]; ok {
			continue
		}
		w.queued[k] = struct{}{}
		w.order = append(w.order, k)
	}
	if len(w.order) > 0 {
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

func (w *watcher) next() (string, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.order) == 0 {
		return "", false
	}
	k := w.order[0]
	w.order = w.order[1:]
	delete(w.queued, k)
	return k, true
}

func (b *Bolt) deliver(ctx context.Context, w *watcher, out chan<- Event) {
	for {
		key, ok := w.next()
		if !ok {
			select {
			case <-w.wake:
				continue
			case <-ctx.Done():
				return
			case <-b.closing:
				return
			}
		}
		ev := Event{}
		e, err := b.Get(ctx, key)
		switch {
		case err == nil:
			ev.Entry = e
		case errors.Is(err, ErrNotFound):
			ev.Key, ev.Deleted = key, true
		default:
			return // closing, or the file can't be read: the reader sees the end
		}
		select {
		case out <- ev:
		case <-ctx.Done():
			return
		case <-b.closing:
			return
		}
	}
}
