/** Why there is no connection. */
export type DialFailure = 'unreachable' | 'blocked' | 'certificate' | 'timeout';

/** No connection came about. */
export class DialError extends Error {
  override readonly name: string = 'DialError';
  constructor(
    readonly reason: DialFailure,
    message: string,
    cause?: unknown,
  ) {
    super(message, cause === undefined ? undefined : { cause });
  }
}

/** No process of this server that speaks to others is there: it says nothing about the server that was asked for. */
export class NoWayOutError extends DialError {
  override readonly name = 'NoWayOutError';
  constructor(processes: readonly string[]) {
    const names = processes.length === 0 ? 'none is named' : processes.join(', ');
    super('unreachable', `no process of this server that speaks to other servers can be reached (${names})`);
  }
}

const certificateErrors =
  /^(?:ERR_TLS_CERT|CERT_|UNABLE_TO_|SELF_SIGNED_|DEPTH_ZERO_|INVALID_(?:CA|PURPOSE)|HOSTNAME_MISMATCH|ERROR_IN_CERT|PATH_LENGTH|CRL_)/;

/** Any error on the way to a connection with a host. */
export function asDialError(error: unknown, host: string): DialError {
  if (error instanceof DialError) return error;
  const { code, name, message } = error as NodeJS.ErrnoException;
  const text = typeof code === 'string' ? code : '';
  const late = name === 'TimeoutError' || text === 'ETIMEDOUT';
  const reason = certificateErrors.test(text) ? 'certificate' : late ? 'timeout' : 'unreachable';
  return new DialError(reason, `${host}: ${message}`, error);
}
