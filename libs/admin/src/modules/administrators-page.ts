/**
 * The page for administrators: a shell that knows nothing. Everything it shows it asks the admin API for, with the token of whoever signs
 * in, and puts on the page as text. Plain JavaScript of the browser, so that nothing has to be built for it.
 */
const script = String.raw`
'use strict';
const $ = (id) => document.getElementById(id);
let token = sessionStorage.getItem('token');

/** Makes an element. Texts become text, never HTML. */
function el(name, properties, ...children) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children.filter((child) => child !== undefined && child !== null));
  return element;
}

async function ask(method, path, body) {
  const response = await fetch(path, {
    method,
    headers: { authorization: 'Bearer ' + token, ...(body ? { 'content-type': 'application/json' } : {}) },
    ...(body ? { body: JSON.stringify(body) } : {}),
  });
  const answer = await response.json().catch(() => ({}));
  if (response.status === 401) signOut();
  if (!response.ok) throw new Error(answer.error || 'The server answers ' + response.status);
  return answer;
}

function tell(message) {
  $('message').textContent = message || '';
}

/** Runs what a button does, and says what goes wrong. */
const doing = (work) => async (event) => {
  if (event && event.preventDefault) event.preventDefault();
  tell('');
  try {
    await work();
  } catch (error) {
    tell(error.message);
  }
};

function signOut() {
  token = null;
  sessionStorage.removeItem('token');
  show(signIn());
}

function show(...content) {
  $('main').replaceChildren(...content.filter((one) => one !== undefined));
}

function signIn() {
  const user = el('input', { autocomplete: 'username' });
  const password = el('input', { type: 'password', autocomplete: 'current-password' });
  const given = el('input', { type: 'password', autocomplete: 'off' });
  const form = el(
    'form',
    {},
    el('h2', {}, 'Sign in as an administrator'),
    el('label', {}, 'Name ', user),
    el('label', {}, 'Password ', password),
    el('label', {}, 'or an access token ', given),
    el('button', {}, 'Sign in'),
  );
  form.onsubmit = doing(async () => {
    if (given.value) token = given.value.trim();
    else {
      const identifier = { type: 'm.id.user', user: user.value };
      const body = { type: 'm.login.password', identifier, password: password.value };
      const login = { ...body, initial_device_display_name: 'Pages for administrators' };
      token = (await ask('POST', signInPath, login)).access_token;
    }
    await showModules();
    sessionStorage.setItem('token', token);
  });
  return form;
}

const ms = (value) => (value === null || value === undefined ? '' : value.toFixed(value < 10 ? 2 : 0) + ' ms');
const link = (text, work) => el('button', { className: 'link', type: 'button', onclick: doing(work) }, text);

function table(columns, rows) {
  const head = el('tr', {}, ...columns.map((name) => el('th', {}, name)));
  const cell = (value) => el('td', {}, typeof value === 'object' && value !== null ? value : String(value ?? ''));
  return el('table', {}, el('thead', {}, head), el('tbody', {}, ...rows.map((row) => el('tr', {}, ...row.map(cell)))));
}

async function showModules() {
  const { modules } = await ask('GET', base + '/v1/modules');
  const parts = modules.map((module) => {
    const links = module.admin_pages.map((id) => link(id, () => showPage(module.name, id)));
    const health = module.callbacks.map((callback) => [
      callback.name + (callback.suspended ? ' (suspended)' : ''),
      callback.calls,
      Object.entries(callback.outcomes).map(([name, count]) => name + ' ' + count).join(', '),
      ms(callback.p50_ms),
      ms(callback.p95_ms),
      callback.last_error ? callback.last_error.message : '',
    ]);
    const thread = module.thread ? ' In a thread of its own, ' + Math.round(module.thread.memory_bytes / 1048576) + ' MiB.' : '';
    return el(
      'section',
      {},
      el('h2', {}, module.name),
      el('p', {}, module.entry + '.' + thread + (module.shadow ? ' In shadow: nothing comes of what it says.' : '')),
      el('p', { className: 'links' }, link('Settings', () => showSettings(module.name)), ...links),
      health.length > 0 ? table(['callback', 'calls', 'outcomes', 'median', '95 %', 'last error'], health) : undefined,
      module.shadow_refusals.length > 0 ? el('p', {}, module.shadow_refusals.length + ' refusals did not count.') : undefined,
    );
  });
  show(el('h1', {}, 'Modules'), ...(parts.length > 0 ? parts : [el('p', {}, 'This server has no modules.')]));
}

const back = () => el('p', {}, link('All modules', showModules));

async function showPage(module, id, sent) {
  const path = pages + encodeURIComponent(module) + '/' + encodeURIComponent(id);
  const { title, sections, message } = await (sent ? ask('POST', path, sent) : ask('GET', path));
  const forms = sections.map(({ title: heading, text, table: rows, form }) =>
    el(
      'section',
      {},
      heading ? el('h2', {}, heading) : undefined,
      text ? el('p', {}, text) : undefined,
      rows ? table(rows.columns, rows.rows) : undefined,
      form ? formOf(form.fields, form.button, (values) => showPage(module, id, { form: form.name, values })) : undefined,
    ),
  );
  show(back(), el('h1', {}, title), ...forms);
  tell(message);
}

/** A form whose values go somewhere. */
function formOf(fields, button, send) {
  const inputs = fields.map((field) => [field, inputOf(field)]);
  const labels = inputs.map(([{ label, help }, input]) =>
    el('label', {}, label + ' ', input, help ? el('small', {}, ' ' + help) : undefined),
  );
  const form = el('form', {}, ...labels, el('button', {}, button));
  form.onsubmit = doing(() => {
    const values = {};
    for (const [{ name, type }, input] of inputs) {
      if (type === 'checkbox') values[name] = input.checked;
      else if (type !== 'number') values[name] = input.value;
      else if (input.value !== '') values[name] = Number(input.value);
    }
    return send(values);
  });
  return form;
}

function inputOf({ type, value, options }) {
  if (type === 'select') {
    const choices = options.map((option) => el('option', { value: option, selected: option === value }, option));
    return el('select', {}, ...choices);
  }
  if (type === 'textarea') return el('textarea', { value: value ?? '', rows: 4, cols: 60 });
  if (type === 'checkbox') return el('input', { type, checked: value === true });
  return el('input', { type: type || 'text', step: 'any', value: value ?? '' });
}

const noValue = '(not set)';

/** The field of a setting. What is no text, number, truth or choice is written as JSON. */
function settingField(name, schema, value, required) {
  const base = { name, label: name + (required ? ' *' : ''), help: schema.description };
  if (Array.isArray(schema.enum) && schema.enum.every((one) => typeof one === 'string'))
    return { ...base, type: 'select', options: [noValue, ...schema.enum], value: value ?? noValue };
  if (schema.type === 'boolean')
    return { ...base, type: 'select', truth: true, options: [noValue, 'true', 'false'], value: value === undefined ? noValue : String(value) };
  if (schema.type === 'integer' || schema.type === 'number') return { ...base, type: 'number', value };
  if (schema.type === 'string') return { ...base, type: 'text', value };
  return { ...base, type: 'textarea', json: true, value: value === undefined ? '' : JSON.stringify(value, null, 2) };
}

/** What the values of a form mean as settings: what is empty is not set. */
function settingsOf(fields, values, rest) {
  const config = { ...rest };
  for (const { name, json, truth } of fields) {
    const value = values[name];
    delete config[name];
    if (value === undefined || value === '' || value === noValue) continue;
    if (json) {
      try {
        config[name] = JSON.parse(value);
      } catch {
        throw new Error(name + ' is no JSON');
      }
    } else config[name] = truth ? value === 'true' : value;
  }
  return config;
}

async function showSettings(module) {
  const path = base + '/v1/modules/' + encodeURIComponent(module) + '/settings';
  const { entry, schema, config, withheld } = await ask('GET', path);
  const now = config ?? {};
  const properties = schema && schema.properties;
  const whole = { name: 'config', label: 'config', type: 'textarea', json: true, value: JSON.stringify(now, null, 2) };
  const required = (schema && schema.required) || [];
  const fields = properties
    ? Object.entries(properties).map(([name, one]) => settingField(name, one, now[name], required.includes(name)))
    : [whole];
  const result = el('pre', {});
  const form = formOf(fields, 'Check', async (values) => {
    const settings = properties ? settingsOf(fields, values, now) : settingsOf([whole], values, {}).config ?? {};
    const { problems, tried } = await ask('POST', path + '/check', { config: settings });
    if (problems.length > 0) {
      result.textContent = '';
      return tell(problems.map((one) => one.message).join('\n'));
    }
    tell(tried ? 'The module takes these settings.' : 'Not tried: the module says no to wrong ones when it is loaded.');
    // JSON is YAML, too.
    result.textContent = '  - module: ' + JSON.stringify(entry) + '\n    config: ' + JSON.stringify(settings, null, 2).replaceAll('\n', '\n    ');
  });
  show(
    back(),
    el('h1', {}, 'Settings of ' + module),
    schema ? undefined : el('p', {}, 'The module does not say what its settings are: see its README.'),
    withheld.length > 0 ? el('p', {}, 'Not shown, and to be left as they are in the file: ' + withheld.join(', ') + '.') : undefined,
    form,
    el('p', {}, 'What is right goes into the settings file, and into force by rookery reload:'),
    result,
  );
}

(token ? doing(showModules)() : Promise.resolve(show(signIn()))).then(() => {
  if (!$('main').firstChild) show(signIn());
});
$('out').onclick = signOut;
`;

const style = `body { font: 1rem/1.5 sans-serif; max-width: 60rem; margin: 1rem auto; padding: 0 1rem }
label { display: block; margin: 0.5rem 0 } table { border-collapse: collapse } th, td { text-align: left; padding: 0.2rem 0.8rem 0.2rem 0 }
.link { border: 0; background: none; color: #0050c0; text-decoration: underline; cursor: pointer; padding: 0 1rem 0 0; font: inherit }
#message { color: #a00000; white-space: pre-wrap } pre { background: #f4f4f4; padding: 0.5rem; overflow: auto } #out { float: right }`;

/** Where the page asks. */
export interface PagePlaces {
  /** Path of the admin API, without a version. */
  readonly admin: string;
  /** Path of modules' pages, with a slash at its end. */
  readonly modulePages: string;
  /** Path of the login. */
  readonly login: string;
}

/** The page for administrators. @param nonce carried by its script, so that no other runs */
export function administratorsPage(nonce: string, { admin, modulePages, login }: PagePlaces): string {
  const places = `const [base, pages, signInPath] = ${JSON.stringify([admin, modulePages, login])};`;
  return `<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Modules</title><style>${style}</style>
<body><button id="out" type="button">Sign out</button><p id="message" role="status"></p><main id="main"></main>
<script nonce="${nonce}">${places}${script}</script></body></html>`;
}
