import { defineModule, MatrixError, NOT_SPAM } from '@rookery/module-api';
import { beginning, broken, type Entry, sealed } from './chain.js';
import { parseConfig } from './config.js';

const pageSize = 500;
const headKey = 'head';
const keyOf = (n: number): string => `entry ${String(n).padStart(12, '0')}`;

/** Keeps a log of what happens to accounts and rooms; each entry is sealed onto the one before. */
export default defineModule({
  name: 'audit-log',
  parseConfig,
  register(api, { key, stateTypes }) {
    const write = async (what: string, who: string | undefined, details: Record<string, unknown>): Promise<void> => {
      const ts = api.getCurrentTimeMsec();
      await api.store.transaction(async (tx) => {
        const head = ((await tx.get(headKey)) as Pick<Entry, 'n' | 'seal'> | undefined) ?? beginning;
        const entry = sealed(key, head, { ts, what, who: who ?? null, details });
        await tx.put(keyOf(entry.n), entry);
        await tx.put(headKey, { n: entry.n, seal: entry.seal });
      });
    };

    api.registerAccountValidityCallbacks({
      onUserRegistration: (userId, { ip }) => write('registration', userId, { ip: ip ?? null }),
      onUserLogin: (userId, provider, _id, { ip }) =>
        write('login', userId, { ip: ip ?? null, provider: provider ?? null }),
    });
    api.registerPasswordAuthProviderCallbacks({
      onLoggedOut: (userId, deviceId) => write('logout', userId, { device_id: deviceId ?? null }),
    });
    api.registerThirdPartyRulesCallbacks({
      onUserDeactivationStatusChanged: (userId, isDeactivated, byAdmin, { userId: by }) =>
        write('deactivation', by, { user_id: userId, deactivated: isDeactivated, by_admin: byAdmin }),
      onNewEvent(event) {
        const { type, stateKey, roomId, sender, eventId, content } = event;
        if (stateKey === undefined || !stateTypes.has(type)) return;
        return write('state', sender, { room_id: roomId, event_id: eventId, type, state_key: stateKey, content });
      },
    });
    api.registerSpamCheckerCallbacks({
      async userMayCreateRoom(userId) {
        await write('room', userId, {});
        return NOT_SPAM;
      },
    });

    const read = async (after: number, limit: number): Promise<Entry[]> => {
      const found = await api.store.list({ prefix: 'entry ', after: keyOf(after), limit });
      return found.map(({ value }) => value as Entry);
    };
    const asAdmin = async (request: Request): Promise<URLSearchParams> => {
      const { isAdmin } = await api.getUserByReq(request);
      if (!isAdmin) throw new MatrixError(403, 'M_FORBIDDEN', 'Only for administrators');
      return new URL(request.url).searchParams;
    };
    api.registerWebResource('/_synapse/client/audit-log', async (request) => {
      const query = await asAdmin(request);
      const after = Number(query.get('after') ?? 0);
      const limit = Number(query.get('limit') ?? 100);
      if (!(Number.isSafeInteger(after) && after >= 0 && Number.isSafeInteger(limit) && limit >= 1))
        throw new MatrixError(400, 'M_INVALID_PARAM', 'after and limit are whole numbers');
      return Response.json({ entries: await read(after, Math.min(limit, pageSize)) });
    });
    api.registerWebResource('/_synapse/client/audit-log/verify', async (request) => {
      await asAdmin(request);
      const head = ((await api.store.get(headKey)) as Pick<Entry, 'n' | 'seal'> | undefined) ?? beginning;
      let last: Pick<Entry, 'n' | 'seal'> = beginning;
      while (last.n < head.n) {
        const page = await read(last.n, Math.min(pageSize, head.n - last.n));
        const wrong = page.length === 0 ? last.n + 1 : broken(key, last, page);
        if (wrong !== undefined) return Response.json({ intact: false, first_wrong: wrong });
        last = page.at(-1)!;
      }
      const isIntact = last.seal === head.seal;
      return Response.json(
        isIntact ? { intact: true, entries: head.n, head: head.seal } : { intact: false, first_wrong: head.n },
      );
    });
  },
});
