package serialsim

import (
	"fmt"
	"io"
	"strings"
)

// What the console's board is called, and who may log in.
const (
	ConsoleUser     = "root"
	ConsolePassword = "secret"
	consolePrompt   = "root@board:~# "
	consoleLogin    = "\r\nboard login: "
)

// Console is the serial console of a small board: a login, then a shell with
// the commands uname, uptime, echo, reboot and exit. It echoes what is typed,
// except the password, and takes CR or LF as the end of a line.
type Console struct {
	in    []byte // the line so far
	state func(c *Console, line string) string
	user  string
	cr    bool // the last byte was one: an LF after it is no line of its own
	quiet bool
}

const maxConsoleLine = 4096 // N_TTY_BUF_SIZE: what a Linux console takes in a line

// Serve talks until the port is gone.
func (c *Console) Serve(line io.ReadWriter) {
	c.state = (*Console).login
	buf := make([]byte, 256)
	for {
		n, err := line.Read(buf)
		if err != nil {
			return
		}
		if out := c.Type(buf[:n]); out != "" {
			if _, err := io.WriteString(line, out); err != nil {
				return
			}
		}
	}
}

// Type is what the console sends for what is typed.
func (c *Console) Type(keys []byte) string {
	if c.state == nil {
		c.state = (*Console).login
	}
	var out strings.Builder
	for _, k := range keys {
		after := c.cr
		c.cr = k == '\r'
		switch {
		case k == '\n' && after:
		case k == '\r', k == '\n':
			text := string(c.in)
			c.in = c.in[:0]
			out.WriteString("\r\n")
			out.WriteString(c.state(c, text))
		case k == 3: // ^C
			c.in = c.in[:0]
			out.WriteString("^C\r\n" + c.prompt())
		case len(c.in) < maxConsoleLine:
			c.in = append(c.in, k)
			if !c.quiet {
				out.WriteByte(k)
			}
		}
	}
	return out.String()
}

func (c *Console) prompt() string {
	if c.user == "" || c.quiet {
		c.state, c.user, c.quiet = (*Console).login, "", false
		return consoleLogin
	}
	return consolePrompt
}

func (c *Console) login(name string) string {
	if name == "" {
		return consoleLogin
	}
	c.user, c.state, c.quiet = name, (*Console).password, true
	return "Password: "
}

func (c *Console) password(word string) string {
	c.quiet = false
	if c.user != ConsoleUser || word != ConsolePassword {
		c.user, c.state = "", (*Console).login
		return "\r\nLogin incorrect" + consoleLogin
	}
	c.state = (*Console).shell
	return "\r\nWelcome to the simulated board.\r\n" + consolePrompt
}

func (c *Console) shell(command string) string {
	name, rest, _ := strings.Cut(strings.TrimSpace(command), " ")
	switch name {
	case "":
		return consolePrompt
	case "uname":
		return "Linux board 6.12.0 aarch64\r\n" + consolePrompt
	case "uptime":
		return " 12:00:00 up 12 min,  1 user,  load average: 0.00, 0.01, 0.05\r\n" + consolePrompt
	case "echo":
		return rest + "\r\n" + consolePrompt
	case "exit":
		c.user, c.state = "", (*Console).login
		return "logout" + consoleLogin
	case "reboot":
		c.user, c.state = "", (*Console).login
		return ConsoleBoot + consoleLogin
	}
	return fmt.Sprintf("sh: %.64s: not found\r\n%s", name, consolePrompt)
}

// ConsoleBoot is what the board says when it starts.
const ConsoleBoot = "\r\nU-Boot 2026.01\r\nStarting kernel ...\r\n[    0.000000] Booting Linux on physical CPU 0x0\r\n[    1.204311] systemd[1]: Hostname set to <board>.\r\n"
