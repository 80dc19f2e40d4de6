import type { UpdateProgress } from '@rookery/database';
import { VerifyKey } from '@rookery/events';
import { type JsonObject, MatrixError } from '@rookery/matrix-types';

/** A background update that an administrator may start. */
export interface Job {
  readonly update: string;
  readonly progress: UpdateProgress;
}

const plain: Readonly<Record<string, string>> = {
  populate_stats_process_rooms: 'populate_stats_process_rooms',
  regenerate_directory: 'populate_user_directory',
};

/**
 * What a body with a `job_name` asks for.
 * @throws MatrixError 400 `M_UNKNOWN` for an unknown job, `M_MISSING_PARAM` or `M_INVALID_PARAM` for what it needs
 */
export function jobOf(body: JsonObject & { readonly job_name: string }): Job {
  const { job_name: name } = body;
  if (name === 'event_resign') return resigning(body);
  const update = Object.hasOwn(plain, name) ? plain[name] : undefined;
  if (update === undefined) throw MatrixError.badRequest('There is no such job');
  return { update, progress: {} };
}

function resigning({ old_key: oldKey, before_ts: beforeTs }: JsonObject): Job {
  if (oldKey === undefined) throw MatrixError.missingParam("Missing parameter 'old_key'");
  const [, keyId, publicKey = ''] = /^(ed25519:[A-Za-z0-9_]{1,64}) (\S{1,64})$/.exec(String(oldKey)) ?? [];
  if (typeof oldKey !== 'string' || keyId === undefined || VerifyKey.parse(publicKey) === undefined)
    throw MatrixError.invalidParam("'old_key' must be `ed25519:ID KEY`, the key in base64");
  if (beforeTs !== undefined && !Number.isSafeInteger(beforeTs))
    throw MatrixError.invalidParam("'before_ts' must be a time in milliseconds");
  return {
    update: 'event_resign',
    progress: {
      old_key_id: keyId,
      old_key: publicKey,
      ...(beforeTs !== undefined && { before_ts: beforeTs as number }),
    },
  };
}
