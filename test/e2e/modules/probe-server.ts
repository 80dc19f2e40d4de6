import { join } from 'node:path';
import { createTestHomeserver, type TestHomeserver, type TestHomeserverOptions } from '@rookery/testing';
import type { DialectName } from '@rookery/database';

import { probe } from './fixtures/probe.js';

export { type Fired, probe } from './fixtures/probe.js';

/** What a method of the API gave, or how it failed. */
export interface Called {
  readonly status: number;
  readonly result: unknown;
  /** Of a failure: the Matrix error code, or the name of the error. */
  readonly error: string | undefined;
}

/** A server with the module that records everything. */
export interface ProbeServer extends TestHomeserver {
  /** Calls a method of the module API inside the server: `store.get`. */
  call(path: string, ...args: unknown[]): Promise<Called>;
}

/** Starts a server with the probe, which has forgotten what another file of tests told it: they may share a process. */
export async function startProbe(
  database: DialectName,
  settings: TestHomeserverOptions['settings'] = {},
  options: TestHomeserverOptions = {},
): Promise<ProbeServer> {
  probe.reset();
  const module = join(import.meta.dirname, 'fixtures/probe.ts');
  const homeserver = await createTestHomeserver({
    ...options,
    database,
    settings: { modules: [{ module }], ...settings },
  });
  return Object.assign(homeserver, {
    async call(path: string, ...args: unknown[]): Promise<Called> {
      const { status, body } = await homeserver.request<Record<string, unknown>>(
        'POST',
        '/_synapse/client/probe/call',
        { path, args },
      );
      const error = body['errcode'] ?? body['thrown'];
      return { status, result: body['result'], error: error === undefined ? undefined : String(error) };
    },
  });
}
