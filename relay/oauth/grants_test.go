package oauth

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"farhand/wire"
)

func TestGrants(t *testing.T) {
	f := open(t)
	login := f.owner("ada")
	f.paired(login, "online")
	f.sockets.hello = &wire.Hello{
		Capabilities: wire.Capabilities{wire.DirectoryBrowse, wire.Files, wire.HardwareGPIO, wire.HardwareSerial, wire.Streams},
		HardwareDevices: []wire.HardwareDevice{
			{Type: "gpio", ID: "gpio:a"}, {Type: "serial", ID: "serial:x"}, {Type: "serial", ID: "serial:y"}, {Type: "usb", ID: "usb:z"}},
	}
	token := func(body map[string]any) (id, secret string) {
		a := f.want(f.do(request{method: "POST", path: "/api/tokens", bearer: login, json: body}), 200)
		return a.str("id"), a.str("token")
	}
	put := func(match string, body any) answer {
		r := request{method: "PUT", path: "/api/machines/online/approval", bearer: login, json: body}
		if match != "" {
			r.header = map[string]string{"If-Match": match}
		}
		return f.do(r)
	}
	get := func(bearer string) (g grantsJSON, tag string) {
		a := f.want(f.do(request{method: "GET", path: "/api/machines/online/grants", bearer: bearer}), 200)
		if err := json.Unmarshal([]byte(a.body), &g); err != nil {
			t.Fatal(err)
		}
		return g, a.header.Get("ETag")
	}
	describe := func(r reachJSON) string {
		var out []string
		for _, d := range r.Devices {
			s := d.ID + "=" + d.Ceiling
			if d.Allowed {
				s += "yes"
			}
			for _, all := range d.Bounds {
				for _, b := range all {
					if b.Lines != nil {
						s += fmt.Sprint(*b.Lines)
					}
					if b.Ops != nil {
						s += fmt.Sprint(*b.Ops)
					}
				}
				s += ";"
			}
			out = append(out, s)
		}
		return strings.Join(out, " ")
	}
	agent, secret := token(map[string]any{"name": "agent", "capabilities": []string{"hardware_gpio", "hardware_serial", "streams"},
		"devices": []any{map[string]any{"pattern": "gpio:*", "ops": []string{"GPIO_GET", "GPIO_WATCH"}}, map[string]any{"pattern": "serial:x"}},
		"roots":   []string{"/data/work/a", "/srv"}})
	token(map[string]any{"name": "elsewhere", "machines": []string{}})

	f.want(put("", map[string]any{"capabilities": []string{"files", "hardware_gpio", "hardware_serial", "streams"},
		"devices": []any{map[string]any{"pattern": "gpio:*", "lines": []string{"GPIO1?", "pin 11"}}, map[string]any{"pattern": "serial:[!y]"}},
		"roots":   []string{"/data/work"}}), 200)
	g, tag := get(login)
	if tag != `"`+g.Revision+`"` || g.Revision == "" || fmt.Sprint(g.Offered) != "[files hardware_gpio hardware_serial]" || !g.Online {
		t.Errorf("%+v, ETag %s", g, tag)
	}
	if fmt.Sprint(g.Effective.Capabilities, *g.Effective.Roots) != "[files hardware_gpio hardware_serial] [/data/work]" {
		t.Errorf("%+v", g.Effective)
	}
	if got := describe(g.Effective); got != "gpio:a=yes[GPIO1? pin 11]; serial:x=yes serial:y=approval usb:z=config" {
		t.Errorf("%s", got)
	}
	if len(g.Tokens) != 1 || g.Tokens[0].ID != agent || g.Tokens[0].Name != "agent" || g.Tokens[0].Ceiling.Devices == nil {
		t.Fatalf("%+v", g.Tokens)
	}
	e := g.Tokens[0].Effective
	if got := fmt.Sprint(e.Capabilities, *e.Roots, describe(e)); got != "[hardware_gpio hardware_serial] [/data/work/a]gpio:a=yes[GPIO1? pin 11];[GPIO_GET GPIO_WATCH]; serial:x=yes serial:y=approval usb:z=config" {
		t.Errorf("%s", got)
	}
	// A token sees itself alone, and no device that it doesn't reach.
	own, _ := get(secret)
	if len(own.Tokens) != 1 || describe(own.Effective) != "gpio:a=yes[GPIO1? pin 11];[GPIO_GET GPIO_WATCH]; serial:x=yes" || describe(own.Tokens[0].Effective) != describe(own.Effective) {
		t.Errorf("%+v", own)
	}

	// An edit for an older revision is refused, and changes nothing.
	f.sockets.take()
	f.want(put(tag, map[string]any{"capabilities": []string{"files"}}), 200)
	if calls := f.sockets.take(); !slices.Equal(calls, []string{"approval online"}) {
		t.Errorf("%v", calls)
	}
	a := put(tag, map[string]any{"capabilities": []string{"shell"}})
	f.apiError(a, 412, "CONFLICT")
	g, newTag := get(login)
	if a.str("error", "details", "revision") != g.Revision || newTag == tag || fmt.Sprint(*g.Approval.Capabilities) != "[files]" || len(f.sockets.take()) != 0 {
		t.Errorf("%+v after %s", g, a.body)
	}
	f.want(put("*", map[string]any{"capabilities": []string{"shell"}}), 200)
	f.want(put("", map[string]any{}), 200) // no list: all
	if g, _ = get(login); describe(g.Effective) != "gpio:a=yes serial:x=yes serial:y=yes usb:z=config" || g.Effective.Roots != nil {
		t.Errorf("%+v", g.Effective)
	}
	f.want(put("", map[string]any{"devices": nil, "roots": nil}), 200) // null: none
	if g, _ = get(login); describe(g.Effective) != "gpio:a=approval serial:x=approval serial:y=approval usb:z=config" || len(*g.Effective.Roots) != 0 {
		t.Errorf("%+v", g.Effective)
	}
	f.apiError(f.do(request{method: "PUT", path: "/api/machines/online/approval", bearer: secret, json: map[string]any{}}), 403, "LOGIN_REQUIRED")
	f.apiError(f.do(request{method: "GET", path: "/api/machines/zzz/grants", bearer: login}), 404, "MACHINE_NOT_ATTACHED")
	f.apiError(f.do(request{method: "GET", path: "/api/machines/online/grants"}), 401, "AUTH_FAILED")
}

// A machine that was never seen may offer anything.
func TestGrantsBeforeTheFirstHello(t *testing.T) {
	f := open(t)
	login := f.owner("ada")
	f.paired(login, "pi-1")
	a := f.want(f.do(request{method: "GET", path: "/api/machines/pi-1/grants", bearer: login}), 200)
	if !strings.Contains(a.body, `"effective":{"capabilities":["files","hardware_gpio"],"devices":[]}`) {
		t.Errorf("%s", a.body)
	}
}

// Of edits that begin at the same revision one wins, and none is lost unsaid.
func TestApprovalEditsAtOnce(t *testing.T) {
	f := open(t)
	login := f.owner("ada")
	f.paired(login, "pi-1")
	tag := f.want(f.do(request{method: "GET", path: "/api/machines/pi-1/grants", bearer: login}), 200).header.Get("ETag")
	var wg sync.WaitGroup
	won := make(chan int, 8)
	for i := range 8 {
		wg.Go(func() {
			a := f.do(request{method: "PUT", path: "/api/machines/pi-1/approval", bearer: login, header: map[string]string{"If-Match": tag},
				json: map[string]any{"roots": []string{fmt.Sprint("/r", i)}}})
			switch a.status {
			case 200:
				won <- i
			case 412:
			default:
				t.Errorf("%d %s", a.status, a.body)
			}
		})
	}
	wg.Wait()
	close(won)
	var winners []int
	for i := range won {
		winners = append(winners, i)
	}
	if len(winners) != 1 {
		t.Fatalf("winners: %v", winners)
	}
	m, err := f.s.Machine(t.Context(), f.ownerID(login), "pi-1")
	if err != nil || (*m.Approval.Roots)[0] != fmt.Sprint("/r", winners[0]) {
		t.Errorf("%+v, %v", m.Approval, err)
	}
}

func TestMeetRoots(t *testing.T) {
	for _, c := range []struct {
		a    *[]string
		b    []string
		want string
	}{
		{nil, []string{"/a"}, "[/a]"},
		{&[]string{"/a", "/b/c"}, []string{"/a/x", "/b"}, "[/b/c /a/x]"},
		{&[]string{"/a"}, []string{"/ab"}, "[]"},
		{&[]string{"/"}, []string{"/a"}, "[/a]"},
		{&[]string{"/a"}, []string{"/a"}, "[/a]"},
		{&[]string{}, []string{"/a"}, "[]"},
	} {
		if got := fmt.Sprint(meetRoots(c.a, c.b)); got != c.want {
			t.Errorf("%v and %v: %s, want %s", c.a, c.b, got, c.want)
		}
	}
}
