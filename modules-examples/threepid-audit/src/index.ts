import { createHash, randomUUID } from 'node:crypto';
import { type CallbackContext, Codes, defineModule, MatrixError, type ModuleApi } from '@rookery/module-api';
import { parseConfig } from './config.js';

/** One thing that happened to an address of an account. */
interface Entry {
  readonly ts: number;
  readonly user_id: string;
  readonly change: 'added' | 'removed';
  readonly medium: string;
  readonly address: string;
  readonly by: string | undefined;
  readonly ip: string | undefined;
}

const page = 1000;
/** Entries of one account lie together, oldest first. Ids can be longer than keys may be, so they are hashed. */
const prefixOf = (userId: string): string => `${createHash('sha256').update(userId).digest('hex')}/`;
const keyOf = (userId: string, ts: number): string =>
  `${prefixOf(userId)}${String(ts).padStart(15, '0')}/${randomUUID()}`;
const tsOf = (key: string): number => Number(key.split('/')[1]);

/** Deletes what is older than it may be. */
async function purge(api: ModuleApi, retentionMs: number): Promise<void> {
  const oldest = api.getCurrentTimeMsec() - retentionMs;
  let after: string | undefined;
  let deleted = 0;
  do {
    const entries = await api.store.list({ limit: page, ...(after === undefined ? {} : { after }) });
    after = entries.length === page ? entries.at(-1)?.key : undefined;
    const old = entries.filter(({ key }) => tsOf(key) < oldest);
    await api.store.transaction(async (tx) => {
      for (const { key } of old) await tx.delete(key);
    });
    deleted += old.length;
  } while (after !== undefined);
  if (deleted > 0) api.log.info('Old entries deleted', { deleted });
}

/** Keeps a record of addresses added to and removed from accounts, which administrators can read. */
export default defineModule({
  name: 'threepid-audit',
  parseConfig,
  register(api, { retentionMs, emailDomains }) {
    const record = async (
      change: Entry['change'],
      userId: string,
      medium: string,
      address: string,
      { userId: by, ip }: CallbackContext,
    ): Promise<void> => {
      const ts = api.getCurrentTimeMsec();
      const entry: Entry = { ts, user_id: userId, change, medium, address, by, ip };
      await api.store.put(keyOf(userId, ts), entry);
    };

    api.registerThirdPartyRulesCallbacks({
      onAddUserThirdPartyIdentifier: (...args) => record('added', ...args),
      onRemoveUserThirdPartyIdentifier: (...args) => record('removed', ...args),
    });

    if (emailDomains) {
      api.registerPasswordAuthProviderCallbacks({
        is3pidAllowed(medium, address) {
          if (medium !== 'email') return true;
          if (emailDomains.has(address.slice(address.lastIndexOf('@') + 1).toLowerCase())) return true;
          return { errcode: Codes.THREEPID_DENIED, message: 'Addresses of this domain are not allowed here' };
        },
      });
    }

    api.registerWebResource('/_synapse/client/threepid-audit/:userId', async (request, { params }) => {
      if (request.method !== 'GET') throw new MatrixError(405, Codes.UNRECOGNIZED, 'Only GET');
      const requester = await api.getUserByReq(request);
      if (!requester.isAdmin) throw MatrixError.forbidden('Only administrators of this server may read this');
      const after = new URL(request.url).searchParams.get('from');
      const entries = await api.store.list({
        prefix: prefixOf(params.userId ?? ''),
        limit: 100,
        ...(after === null ? {} : { after }),
      });
      const next = entries.length === 100 ? entries.at(-1)?.key : undefined;
      return Response.json({ entries: entries.map(({ value }) => value), ...(next === undefined ? {} : { next }) });
    });

    api.scheduler.every('purge', 86_400_000, () => purge(api, retentionMs));
  },
});
