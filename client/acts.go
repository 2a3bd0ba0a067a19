package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
)

// Act is one record of what the owner's logins and tokens asked of the relay: who,
// on which machine, what kind of request and how it ended; never what was in it.
type Act struct {
	TS        float64    `json:"ts"` // Unix seconds
	Op        string     `json:"op"` // the type of the request, or an event such as LOGIN or TOKEN_CREATED
	SessionID string     `json:"session_id"`
	Details   ActDetails `json:"details"`
	Result    ActResult  `json:"result"`
}

// ActDetails say who and on what. Which of them there are depends on the act.
type ActDetails struct {
	Holder    string `json:"holder,omitempty"` // the id of the login or token
	MachineID string `json:"machine_id,omitempty"`
	Phase     string `json:"phase,omitempty"` // intent: before the effect, another record has the outcome
	Subject   string `json:"subject,omitempty"`
	Address   string `json:"address,omitempty"`
	Reason    string `json:"reason,omitempty"`
}

// ActResult is how an act ended.
type ActResult struct {
	OK         bool    `json:"ok"`
	ErrorCode  *string `json:"error_code"`
	DurationMS *int64  `json:"duration_ms"`
}

// Acts are the owner's last records, oldest first, and how many of the relay's
// instances, of which each has some, could not be asked.
type Acts struct {
	Records          []Act `json:"records"`
	InstancesMissing int   `json:"instances_missing"`
}

// Acts reads the owner's last n acts, 1 to 1000. It needs the owner's own login.
func (c *Client) Acts(ctx context.Context, n int) (Acts, error) {
	var out Acts
	err := c.call(ctx, http.MethodGet, "/api/audit?"+url.Values{"limit": {strconv.Itoa(n)}}.Encode(), nil, &out)
	return out, err
}

// ActsReport is what the relay found when it verified the log of the owner's acts.
type ActsReport struct {
	OK               bool     `json:"ok"`
	Records          int64    `json:"records"`
	Problems         []string `json:"problems"`
	InstancesMissing int      `json:"instances_missing"` // of the relay, that didn't answer
}

// VerifyActs has the relay check that no record of the owner's acts was changed or
// is missing. A log with problems is a report with OK false, not an error.
func (c *Client) VerifyActs(ctx context.Context) (ActsReport, error) {
	var out ActsReport
	err := c.call(ctx, http.MethodGet, "/api/audit/verify", nil, &out)
	return out, err
}
