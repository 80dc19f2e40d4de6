import { type Config, isMain } from '@rookery/platform';
import { writerLease } from '@rookery/replication';

/**
 * The processes that alone may speak to other servers, as `Rpc` names them; `undefined` where all may. The main process is whichever
 * writes: all that are started without `worker_app` have that name.
 */
export function speakersOf(config: Config): readonly string[] | undefined {
  const names = config.get('outbound_federation_restricted_to');
  return names && [...new Set(names.map((name) => (isMain(name) ? writerLease : name)))];
}

/** Whether the process of these settings is one of them. */
export function maySpeak(config: Config): boolean {
  const names = config.get('outbound_federation_restricted_to');
  if (names === undefined) return true;
  if (config.get('worker_app') === undefined) return names.some(isMain);
  return names.includes(config.get('worker_name') ?? '');
}
