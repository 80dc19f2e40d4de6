/** A field of a login form. */
export interface FormField {
  readonly name: string;
  readonly label: string;
  readonly type?: 'text' | 'password' | 'email' | undefined;
}

/** The page of a strategy that checks what people type: a directory, a password file. */
export interface LoginForm {
  /** Headline of the page. */
  readonly title: string;
  /** Default: `username` and `password`. */
  readonly fields?: readonly FormField[] | undefined;
  /** Words of the button; default "Sign in". */
  readonly button?: string | undefined;
}

const usual: readonly FormField[] = [
  { name: 'username', label: 'User name' },
  { name: 'password', label: 'Password', type: 'password' },
];

const escaped = (text: string): string =>
  text.replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`).toWellFormed();

/** The page; `message` says what was wrong the last time. Passwords are never filled in. */
export function formPage(
  { title, fields = usual, button = 'Sign in' }: LoginForm,
  action: string,
  message: string | undefined,
  typed: Readonly<Record<string, unknown>> = {},
): string {
  const inputs = fields.map(({ name, label, type = 'text' }) => {
    const value = type === 'password' ? undefined : typed[name];
    const filled = typeof value === 'string' ? ` value="${escaped(value)}"` : '';
    const completion = type === 'password' ? 'current-password' : 'username';
    return `<label>${escaped(label)}<input name="${escaped(name)}" type="${type}" autocomplete="${completion}" required${filled}></label>`;
  });
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escaped(title)}</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; margin: 0; display: grid; place-items: center; min-height: 100vh; background: Canvas; color: CanvasText; color-scheme: light dark; }
form { display: grid; gap: 1rem; width: min(22rem, 90vw); }
label { display: grid; gap: .25rem; }
input, button { font: inherit; padding: .5rem .75rem; border: 1px solid GrayText; border-radius: .5rem; }
button { background: #17191c; color: #fff; }
.error { color: #c0392b; margin: 0; }
</style>
</head>
<body>
<form method="post" action="${escaped(action)}">
<h1>${escaped(title)}</h1>
${message === undefined ? '' : `<p class="error" role="alert">${escaped(message)}</p>\n`}${inputs.join('\n')}
<button type="submit">${escaped(button)}</button>
</form>
</body>
</html>
`;
}
