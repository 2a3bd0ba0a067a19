package relay

import (
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// registerRoot mounts what belongs to neither part.
func (r *Relay) registerRoot(mux *http.ServeMux) {
	node := r.node
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		if node != nil && !node.Alive(node.ID()) { // a balancer takes another instance
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, "cut off from NATS\n")
			return
		}
		_, _ = io.WriteString(w, "ok\n")
	})
	// What a person sees who types the bare address.
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		http.Redirect(w, r, "/device", http.StatusSeeOther)
	})
}

// fromProxies gives a request that came through a trusted proxy the address
// that it came from: the last one in X-Forwarded-For that isn't a trusted proxy
// itself. Whatever stands before that anybody could have written.
func fromProxies(trusted []netip.Prefix, next http.Handler) http.Handler {
	if len(trusted) == 0 {
		return next
	}
	isTrusted := func(a netip.Addr) bool {
		return slices.ContainsFunc(trusted, func(p netip.Prefix) bool { return p.Contains(a) })
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		peer, err := netip.ParseAddrPort(r.RemoteAddr)
		if err != nil || !isTrusted(peer.Addr().Unmap()) {
			next.ServeHTTP(w, r)
			return
		}
		hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
		for _, hop := range slices.Backward(hops) {
			a, err := netip.ParseAddr(strings.TrimSpace(hop))
			if err != nil {
				break
			}
			a = a.Unmap()
			r.RemoteAddr = netip.AddrPortFrom(a, peer.Port()).String()
			if !isTrusted(a) {
				break
			}
		}
		next.ServeHTTP(w, r)
	})
}
