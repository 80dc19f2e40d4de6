import { createHmac } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { userInfo } from 'node:os';
import type { Command } from 'commander';
import { fileProblem, loadConfig } from '@rookery/platform';
import { CommandError } from '../command-error.js';
import type { Terminal } from '../terminal.js';
import { askTwice, collect } from './common.js';
import { askServer, givenEndpoint, nameOf, ownEndpoint, type ServerEndpoint } from './server-endpoint.js';

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
  const path = `/${config?.get('service_prefix') ?? '_synapse'}/admin/v1/register`;
  const own = url === undefined && config !== undefined ? ownEndpoint(config, path) : undefined;
  const endpoint = own ?? givenEndpoint(url ?? 'http://localhost:8008', path);
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

async function nonceOf(endpoint: ServerEndpoint): Promise<string> {
  const { nonce } = await call(endpoint, undefined);
  if (typeof nonce !== 'string') throw new CommandError(`${nameOf(endpoint)} does not answer as a homeserver does`);
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

async function call(endpoint: ServerEndpoint, body: object | undefined): Promise<Record<string, unknown>> {
  const { status, text } = await askServer(endpoint, body);
  let answer: unknown;
  try {
    answer = JSON.parse(text);
  } catch {
    answer = undefined;
  }
  if (typeof answer !== 'object' || answer === null)
    throw new CommandError(`${nameOf(endpoint)} answered ${status} without JSON: is that a homeserver?`);
  const json = answer as Record<string, unknown>;
  if (status < 200 || status > 299) {
    // What comes back goes to a terminal.
    const reason = String(json['error'] ?? json['errcode'] ?? status).replace(/[^\P{C}]/gu, ' ');
    throw new Refusal(status, json['errcode'], reason);
  }
  return json;
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
