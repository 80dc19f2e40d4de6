import { createHmac } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { userInfo } from 'node:os';
import type { Command } from 'commander';
import { type Config, fileProblem, type Listener, loadConfig } from '@rookery/platform';
import { CommandError } from '../command-error.js';
import type { Terminal } from '../terminal.js';
import { askTwice, collect } from './common.js';

interface RegisterOptions {
  readonly user?: string;
  readonly password?: string;
  readonly passwordFile?: string;
  readonly admin?: boolean;
  readonly userType?: string;
  readonly displayName?: string;
  readonly config?: string[];
  readonly sharedSecret?: string;
  readonly existsOk?: boolean;
}

/** What is read where nothing is given. */
const defaultFile = 'homeserver.yaml';
/** How long the server may take. */
const timeoutMs = 30_000;
/** Longest answer read, bytes. */
const answerLimit = 1024 * 1024;

/** `rookery register-user` */
export function registerRegisterUserCommand(program: Command, terminal: Terminal): void {
  program
    .command('register-user')
    .description('Makes an account on a running server. Asks for what is not given.')
    .argument('[url]', "the server's address. Default: where the settings listen, else http://localhost:8008")
    .option('-u, --user <localpart>', 'name of the account')
    .option('-p, --password <password>', 'its password; visible to other users of this machine, so better asked for')
    .option('--password-file <file>', 'file whose first line is the password')
    .option('-a, --admin', 'make it a server administrator')
    .option('--no-admin', 'make it an ordinary account')
    .option('-t, --user-type <type>', 'such as bot or support')
    .option('--display-name <name>', 'name shown to others')
    .option(
      '-c, --config <file>',
      'settings file with the registration_shared_secret; may be given several times (default: homeserver.yaml, where no secret is given)',
      collect,
    )
    .option('-k, --shared-secret <secret>', 'the registration_shared_secret itself')
    .option('--exists-ok', 'succeed when the account exists already')
    .action((url: string | undefined, options: RegisterOptions) => registerUser(url, options, terminal));
}

async function registerUser(url: string | undefined, options: RegisterOptions, terminal: Terminal): Promise<void> {
  if (options.config !== undefined && options.sharedSecret !== undefined)
    throw new CommandError('Give either --config or --shared-secret', 2);
  if (options.password !== undefined && options.passwordFile !== undefined)
    throw new CommandError('Give either --password or --password-file', 2);
  const isAssumed = options.config === undefined && options.sharedSecret === undefined;
  if (isAssumed && !existsSync(defaultFile))
    throw new CommandError(
      `There is no ${defaultFile} in this folder: give the settings file with --config, or the secret with --shared-secret`,
      2,
    );
  const files = isAssumed ? [defaultFile] : options.config;
  const config = files === undefined ? undefined : loadConfig(files);
  const secret = options.sharedSecret ?? config?.get('registration_shared_secret');
  if (secret === undefined) {
    throw new CommandError(
      `${files?.join(', ')}: registration_shared_secret is not set, so that nobody can register this way`,
      2,
    );
  }
  const endpoint = endpointOf(
    url ?? (config && addressOf(config)) ?? 'http://localhost:8008',
    config?.get('service_prefix') ?? '_synapse',
  );
  try {
    // Before anything is asked: whether there is a server at all.
    await nonceOf(endpoint);
    const username = options.user ?? (await terminal.ask('Name of the account', loginName()));
    if (username === '') throw new CommandError('A name must not be empty', 2);
    const password =
      options.password ??
      (options.passwordFile === undefined ? await askTwice(terminal) : firstLine(options.passwordFile));
    if (password === '') throw new CommandError('A password must not be empty', 2);
    const admin = options.admin ?? /^y(es)?$/i.test(await terminal.ask('Make it a server administrator?', 'no'));

    // The answers may have taken longer than a nonce lives.
    const nonce = await nonceOf(endpoint);
    const account = await call(endpoint, {
      nonce,
      username,
      password,
      admin,
      mac: registrationMac(secret, { nonce, username, password, admin, userType: options.userType }),
      ...(options.userType === undefined ? {} : { user_type: options.userType }),
      ...(options.displayName === undefined ? {} : { displayname: options.displayName }),
      inhibit_login: true,
    });
    terminal.out(
      `Made ${typeof account['user_id'] === 'string' ? account['user_id'] : username}${admin ? ', a server administrator' : ''}.`,
    );
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    if (options.existsOk && error.errcode === 'M_USER_IN_USE') terminal.out('The account exists already.');
    else
      throw new CommandError(
        `The server refused: ${error.message}${error.status === 403 ? ' (is this the registration_shared_secret it runs with?)' : ''}`,
      );
  }
}

async function nonceOf(endpoint: string): Promise<string> {
  const { nonce } = await call(endpoint, undefined);
  if (typeof nonce !== 'string') throw new CommandError(`${endpoint} does not answer as a homeserver does`);
  return nonce;
}

/** What proves to the server that the caller knows the secret: hexadecimal HMAC-SHA1 over the fields with NUL between them. */
export function registrationMac(
  secret: string,
  request: {
    readonly nonce: string;
    readonly username: string;
    readonly password: string;
    readonly admin: boolean;
    readonly userType?: string | undefined;
  },
): string {
  const parts = [request.nonce, request.username, request.password, request.admin ? 'admin' : 'notadmin'];
  if (request.userType !== undefined) parts.push(request.userType);
  return createHmac('sha1', secret).update(parts.join('\0'), 'utf8').digest('hex');
}

/** The server said no. */
class Refusal extends Error {
  constructor(
    readonly status: number,
    readonly errcode: unknown,
    message: string,
  ) {
    super(message);
  }
}

async function call(endpoint: string, body: object | undefined): Promise<Record<string, unknown>> {
  let response: Response;
  let text: string;
  try {
    response = await fetch(endpoint, {
      signal: AbortSignal.timeout(timeoutMs),
      redirect: 'error',
      ...(body ? { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) } : {}),
    });
    text = await response.text();
  } catch (error) {
    const { cause, message } = error as Error & { cause?: NodeJS.ErrnoException };
    throw new CommandError(
      `Cannot reach ${endpoint}: ${cause?.code ?? cause?.message ?? message}. Is the server running?`,
    );
  }
  let answer: unknown;
  try {
    answer = text.length > answerLimit ? undefined : JSON.parse(text);
  } catch {
    answer = undefined;
  }
  if (typeof answer !== 'object' || answer === null)
    throw new CommandError(`${endpoint} answered ${response.status} without JSON: is that a homeserver?`);
  const json = answer as Record<string, unknown>;
  if (!response.ok) {
    // What comes back goes to a terminal.
    const reason = String(json['error'] ?? json['errcode'] ?? response.status).replace(/[^\P{C}]/gu, ' ');
    throw new Refusal(response.status, json['errcode'], reason);
  }
  return json;
}

function endpointOf(url: string, servicePrefix: string): string {
  if (!URL.canParse(url) || !/^https?:$/.test(new URL(url).protocol))
    throw new CommandError(`${url} is not an http:// or https:// address`, 2);
  return `${url.replace(/\/+$/, '')}/${servicePrefix}/admin/v1/register`;
}

/** Where the settings make the server listen for administrators, without TLS: nobody has a certificate for localhost. */
function addressOf(config: Config): string | undefined {
  const serves = (one: Listener): boolean =>
    one.type === 'http' &&
    !one.tls &&
    one.port !== undefined &&
    one.resources.some(({ names }) => names.includes('client'));
  const found = config.get('listeners').find(serves);
  if (!found) return undefined;
  const address = found.bind_addresses?.[0];
  const any = address === undefined || address === '0.0.0.0' || address === '::';
  return `http://${any ? 'localhost' : address.includes(':') ? `[${address}]` : address}:${found.port}`;
}

function firstLine(file: string): string {
  try {
    return readFileSync(file, 'utf8').split(/\r?\n/, 1)[0] ?? '';
  } catch (error) {
    throw new CommandError(`Cannot read ${file}: ${fileProblem(error)}`);
  }
}

function loginName(): string | undefined {
  try {
    return userInfo().username.toLowerCase();
  } catch {
    return undefined;
  }
}
