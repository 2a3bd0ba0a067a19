package oauth

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"time"

	"farhand/relay/access"
)

// life is one of the times for which an agent may be let in.
type life struct {
	Value, Label string
	Chosen       bool
	last         time.Duration // 0: until it is taken back
}

// lives are those to choose from. The second is the default: long enough to go on
// with tomorrow, short enough to be asked again before it is forgotten.
var lives = []life{
	{Value: "1d", Label: "A day", last: 24 * time.Hour},
	{Value: "7d", Label: "A week", last: 7 * 24 * time.Hour, Chosen: true},
	{Value: "30d", Label: "A month", last: 30 * 24 * time.Hour},
	{Value: "365d", Label: "A year", last: 365 * 24 * time.Hour},
	{Value: "", Label: "Until it is taken back"},
}

// machineTick is one machine of the consent page.
type machineTick struct {
	ID, Name, Board string
	Ticked          bool
}

// allMachines stands for every machine, also those that come later.
const allMachines = "*"

func (s *Server) showAgentConsent(w http.ResponseWriter, r *http.Request, v visitor, a authRequest, q, filled url.Values, wrong string) {
	machines, err := s.Machines(r.Context(), v.session.Owner)
	if err != nil {
		s.unavailable(w, r, v, err)
		return
	}
	p := s.page(v, "Let an agent in?", "authorize", authSubject(q))
	p.Problem = wrong
	t := offer(nil)
	status := http.StatusOK
	choice := slices.Clone(lives)
	if filled != nil {
		t.chosen(filled)
		status = http.StatusBadRequest
		for i := range choice {
			choice[i].Chosen = choice[i].Value == filled.Get("for")
		}
	}
	var ticks []machineTick
	for _, m := range machines {
		// With one machine there is nothing to choose; with several nothing is chosen yet.
		ticked := filled == nil && len(machines) == 1 || slices.Contains(filled["machine"], m.ID)
		ticks = append(ticks, machineTick{m.ID, m.Name, m.Board, ticked})
	}
	s.show(w, r, status, "agent", agentPage{
		p, t, a.Agent.Name, a.Redirect, carried(q), ticks, slices.Contains(filled["machine"], allMachines), choice,
	}, redirectOrigin(a.Redirect))
}

// agentPage is what the consent page for an agent shows.
type agentPage struct {
	page
	ticks
	Client, Redirect string
	Hidden           []hidden
	Machines         []machineTick
	Every            bool
	Lives            []life
}

// readAgentConsent is what the owner chose beside the ceiling.
func (s *Server) readAgentConsent(ctx context.Context, v visitor, a authRequest, form url.Values) (*forAgent, error) {
	to := &forAgent{Name: a.Agent.Name, Account: v.session.Account}
	at := slices.IndexFunc(lives, func(l life) bool { return l.Value == form.Get("for") })
	if at < 0 || len(form["for"]) != 1 {
		return nil, badArgument("for how long isn't one of those to choose from")
	}
	if last := lives[at].last; last > 0 {
		to.Ends = now().Add(last)
	}
	chosen := form["machine"]
	if slices.Contains(chosen, allMachines) {
		return to, nil
	}
	machines, err := s.Machines(ctx, v.session.Owner)
	if err != nil {
		return nil, err
	}
	ids := []string{}
	for _, id := range chosen {
		if !slices.ContainsFunc(machines, func(m access.Machine) bool { return m.ID == id }) {
			return nil, badArgument("a machine that was chosen is no longer there")
		}
		ids = append(ids, id)
	}
	if len(ids) == 0 {
		return nil, badArgument("no machine is chosen")
	}
	to.Machines = &ids
	return to, nil
}
