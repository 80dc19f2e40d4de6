import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Database } from '@rookery/database';
import { MatrixError } from '@rookery/matrix-types';
import { Logger, SingleFlight } from '@rookery/platform';
import { providerLoginsOfDevice, SessionService, UserHooks } from '@rookery/users';
import { SealedCookies } from '../common/sealed-cookies.js';
import { SsoSessions } from '../common/sso-sessions.js';
import type { ModuleProvider } from './module-provider.js';
import { ModuleProviders } from './module-providers.service.js';

/** Who does not come for so long has to sign on again. */
const keepMs = 90 * 86_400_000;

/**
 * Tokens that providers of modules gave with a sign-on, encrypted. Whenever a client renews its access token, the provider says
 * whether the person is still signed on there.
 */
@Injectable()
export class ProviderTokens implements OnModuleInit {
  /** Of two requests at a time one asks: providers take a token once. */
  readonly #asking = new SingleFlight<boolean>();

  constructor(
    private readonly database: Database,
    private readonly hooks: UserHooks,
    private readonly sessions: SessionService,
    private readonly remembered: SsoSessions,
    private readonly cookies: SealedCookies,
    private readonly providers: ModuleProviders,
    private readonly logger: Logger,
  ) {}

  onModuleInit(): void {
    this.hooks.refreshing.subscribe({ prepare: ({ userId, deviceId }) => this.#check(userId, deviceId) });
  }

  /** Keeps the tokens of a session at a provider. */
  async put(providerId: string, sessionId: string, tokens: string): Promise<void> {
    const key = keyOf(providerId, sessionId);
    await this.remembered.replace('tokens', key, { sealed: this.cookies.encrypt(key, { tokens }, keepMs) }, keepMs);
  }

  /** @throws MatrixError 401 `M_UNKNOWN_TOKEN` when the person is not signed on any more; the device's session has ended */
  async #check(userId: string, deviceId: string): Promise<void> {
    if (!this.providers.all.some(({ refreshes }) => refreshes)) return;
    for (const { providerId, sessionId } of await providerLoginsOfDevice(this.database, userId, deviceId)) {
      const provider = this.providers.find(providerId);
      if (!provider?.refreshes || sessionId === '') continue;
      const key = keyOf(providerId, sessionId);
      if (await this.#asking.run(key, () => this.#ask(provider, sessionId))) continue;
      this.logger.info('A provider did not renew a session', { provider: providerId, user_id: userId });
      await this.sessions.closeDevices(userId, [deviceId]);
      throw MatrixError.unknownToken('You are not signed in at your provider any more', {
        soft_logout: false,
      });
    }
  }

  async #ask(provider: ModuleProvider, sessionId: string): Promise<boolean> {
    const key = keyOf(provider.id, sessionId);
    const found = await this.remembered.find('tokens', key);
    const kept = typeof found?.['sealed'] === 'string' ? this.cookies.decrypt(key, found['sealed']) : undefined;
    // Of another key, or none were given: nobody can be asked.
    if (typeof kept?.['tokens'] !== 'string') return true;
    try {
      const next = await provider.refresh(kept['tokens']);
      if (next === undefined) {
        await this.remembered.take('tokens', key);
        return false;
      }
      await this.put(provider.id, sessionId, next);
    } catch (err) {
      // A provider that is away logs nobody out.
      this.logger.warn('A provider could not be asked about a session', { provider: provider.id, err });
    }
    return true;
  }
}

const keyOf = (providerId: string, sessionId: string): string => `tokens ${providerId} ${sessionId}`;
