import { createHash } from 'node:crypto';
import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Database } from '@rookery/database';
import type { JsonObject } from '@rookery/matrix-types';
import { BackgroundTasks, Clock } from '@rookery/platform';
import { UserPorts } from '@rookery/users';
import {
  findSsoSession,
  insertSsoSession,
  purgeSsoSessions,
  replaceSsoSession,
  type SsoSessionKind,
  takeSsoSession,
  updateSsoSession,
} from './sso-session.query.js';

const purgeEveryMs = 3_600_000;
const hashOf = (id: string): string => createHash('sha256').update(id).digest('base64url');

/** What the server itself remembers of sign-ons, by ids of which it stores hashes; it survives restarts. */
@Injectable()
export class SsoSessions implements OnModuleInit {
  constructor(
    private readonly database: Database,
    private readonly clock: Clock,
    private readonly tasks: BackgroundTasks,
    private readonly ports: UserPorts,
  ) {}

  onModuleInit(): void {
    const run = (): Promise<void> => this.purge();
    this.tasks.add({ name: 'purge_sso_sessions', role: 'background', everyMs: purgeEveryMs, run }).start();
    // Most logins have none: looked for without a transaction.
    this.ports.loginTokenFields.give(async (token) =>
      (await this.find('login_fields', token)) ? this.take('login_fields', token) : undefined,
    );
  }

  /** @returns whether nothing was remembered under the id */
  put(kind: SsoSessionKind, id: string, value: JsonObject, lifetimeMs: number): Promise<boolean> {
    return this.database.write((tx) => insertSsoSession(tx, kind, hashOf(id), value, this.clock.nowMs() + lifetimeMs), {
      name: 'sso_session',
    });
  }

  find(kind: SsoSessionKind, id: string): Promise<JsonObject | undefined> {
    return findSsoSession(this.database, kind, hashOf(id), this.clock.nowMs());
  }

  /** Changes what is remembered; its time goes on. */
  update(kind: SsoSessionKind, id: string, value: JsonObject): Promise<boolean> {
    return this.database.write((tx) => updateSsoSession(tx, kind, hashOf(id), value), { name: 'sso_session' });
  }

  /** Remembers this in place of what was there. */
  async replace(kind: SsoSessionKind, id: string, value: JsonObject, lifetimeMs: number): Promise<void> {
    const expiryMs = this.clock.nowMs() + lifetimeMs;
    await this.database.write((tx) => replaceSsoSession(tx, kind, hashOf(id), value, expiryMs), {
      name: 'sso_session',
    });
  }

  /** Takes what is remembered; once. */
  take(kind: SsoSessionKind, id: string): Promise<JsonObject | undefined> {
    return this.database.write((tx) => takeSsoSession(tx, kind, hashOf(id), this.clock.nowMs()), {
      name: 'sso_session',
    });
  }

  /** Marks an answer of a provider as used. @returns whether it was not yet */
  useOnce(id: string, lifetimeMs: number): Promise<boolean> {
    return this.put('used', id, {}, lifetimeMs);
  }

  /** Whether an answer of a provider was used: by {@link useOnce}. */
  async isUsed(id: string): Promise<boolean> {
    return (await this.find('used', id)) !== undefined;
  }

  /** Forgets what has expired. */
  async purge(): Promise<void> {
    const options = { name: 'purge_sso_sessions', anyProcess: true };
    await this.database.write((tx) => purgeSsoSessions(tx, this.clock.nowMs()), options);
  }
}
