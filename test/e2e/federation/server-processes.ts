import { freePort, makeTestAuthority } from '@rookery/testing';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type DatabaseKind, ServerProcess } from '../../support/server-process.js';

/** A program that speaks with others. */
export interface FederatingProcess {
  readonly process: ServerProcess;
  readonly name: string;
}

/** Programs as their operators run them, with real names, sockets and certificates, that trust each other. */
export class FederatingProcesses {
  readonly #authority = makeTestAuthority();
  readonly #started: FederatingProcess[] = [];

  constructor(private readonly database: DatabaseKind) {}

  /**
   * Starts one more.
   * @param settings besides those that it needs to be found and believed
   * @param files put into its folder, by name
   * @param resources what its first listener serves besides clients
   */
  async start(
    settings: object = {},
    files: Readonly<Record<string, string>> = {},
    resources: readonly string[] = [],
  ): Promise<FederatingProcess> {
    const [port, tlsPort] = [await freePort(), await freePort()];
    const name = `localhost:${tlsPort}`;
    const listener = { bind_addresses: ['127.0.0.1'], type: 'http' };
    const process = await ServerProcess.prepare(this.database, {
      server_name: name,
      ip_range_whitelist: ['127.0.0.0/8', '::1/128'],
      federation_custom_ca_list: ['ca.pem'],
      tls_certificate_path: 'tls.cert',
      tls_private_key_path: 'tls.key',
      listeners: [
        { ...listener, port, resources: [{ names: ['client', ...resources] }] },
        { ...listener, port: tlsPort, tls: true, resources: [{ names: ['federation'] }] },
      ],
      ...settings,
    });
    Object.assign(process, { baseUrl: `http://127.0.0.1:${port}` });
    const { cert, key } = this.#authority.issue(['localhost']);
    await writeFile(join(process.folder, 'ca.pem'), this.#authority.cert);
    await writeFile(join(process.folder, 'tls.cert'), cert);
    await writeFile(join(process.folder, 'tls.key'), key);
    for (const [file, text] of Object.entries(files)) await writeFile(join(process.folder, file), text);
    const started = { process, name };
    this.#started.push(started);
    await process.start();
    return started;
  }

  /** Stops all and removes what they wrote. */
  async remove(): Promise<void> {
    for (const { process } of this.#started) await process.remove();
  }
}

/** Somebody with an account on a program. */
export class ProcessUser {
  private constructor(
    readonly home: FederatingProcess,
    readonly userId: string,
    readonly deviceId: string,
    private readonly token: string,
  ) {}

  static async register(home: FederatingProcess, username: string): Promise<ProcessUser> {
    const answer = await fetch(`${home.process.baseUrl}/_matrix/client/v3/register`, {
      method: 'POST',
      body: JSON.stringify({ username, password: 'correct horse', auth: { type: 'm.login.dummy' } }),
    });
    const body = (await answer.json()) as { user_id: string; device_id: string; access_token: string };
    if (!answer.ok) throw new Error(`register: ${JSON.stringify(body)}`);
    return new ProcessUser(home, body.user_id, body.device_id, body.access_token);
  }

  /** Whether it was answered with 2xx, and the answer; nothing else happened when the program ended meanwhile. */
  async try<T = Record<string, unknown>>(
    method: string,
    path: string,
    body?: object,
  ): Promise<{ readonly ok: boolean; readonly body: T | undefined }> {
    try {
      const answer = await fetch(`${this.home.process.baseUrl}/_matrix/client/v3${path}`, {
        method,
        headers: { authorization: `Bearer ${this.token}` },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      });
      return { ok: answer.ok, body: (await answer.json()) as T };
    } catch {
      return { ok: false, body: undefined };
    }
  }

  /** Puts a file into the media repository; whether it was taken. */
  async upload(bytes: Uint8Array<ArrayBuffer>): Promise<boolean> {
    const answer = await fetch(`${this.home.process.baseUrl}/_matrix/media/v3/upload`, {
      method: 'POST',
      headers: { authorization: `Bearer ${this.token}`, 'content-type': 'application/octet-stream' },
      body: bytes,
    });
    await answer.arrayBuffer();
    return answer.ok;
  }

  /** The answer. @throws Error for any but 2xx */
  async call<T = Record<string, unknown>>(method: string, path: string, body?: object): Promise<T> {
    const answer = await this.try<T>(method, path, body);
    if (!answer.ok || answer.body === undefined) throw new Error(`${method} ${path}: ${JSON.stringify(answer.body)}`);
    return answer.body;
  }
}
