import type { Tx } from '@rookery/database';
import { MatrixError } from '@rookery/matrix-types';
import { canonicalAddress } from '@rookery/users';
import { emailAppId, type PusherKey } from './pusher.js';
import { deletePushers, pushersOf } from './pusher.query.js';

/** The key under which a pusher is stored: of one that sends mails the address as the account has it, however it was written. */
export function storedKey({ appId, pushkey }: PusherKey): string {
  if (appId !== emailAppId) return pushkey;
  try {
    return canonicalAddress('email', pushkey);
  } catch (error) {
    // No address at all: it names nothing but itself.
    if (MatrixError.is(error)) return pushkey;
    throw error;
  }
}

/**
 * Deletes a user's pusher, also one whose address was stored as it was written.
 * @param except the key of one that stays
 */
export async function forgetPusher(tx: Tx, userId: string, key: PusherKey, except?: string): Promise<void> {
  const { appId } = key;
  if (appId !== emailAppId) return deletePushers(tx, userId, appId, [key.pushkey]);
  const stored = storedKey(key);
  const same = (await pushersOf(tx, userId)).filter((one) => one.appId === appId && storedKey(one) === stored);
  const pushkeys = same.map(({ pushkey }) => pushkey).filter((pushkey) => pushkey !== except);
  if (pushkeys.length > 0) await deletePushers(tx, userId, appId, pushkeys);
}
