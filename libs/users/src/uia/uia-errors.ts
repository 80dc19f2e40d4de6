import { MatrixError } from '@rookery/matrix-types';

/** What a client has to do before its request is carried out. */
export interface UiaChallenge {
  readonly session: string;
  readonly flows: readonly (readonly string[])[];
  readonly params: Readonly<Record<string, object>>;
  readonly completed: readonly string[];
}

/**
 * 401 with the stages that a client may go through.
 * @spec client-server-api#user-interactive-api-in-the-rest-api
 */
export class InteractiveAuthRequired extends MatrixError {
  readonly #failed: boolean;

  /** @param failure why the stage that was tried failed; absent when none was tried */
  constructor(challenge: UiaChallenge, failure?: MatrixError) {
    super(401, failure?.errcode ?? 'M_UNAUTHORIZED', failure?.message ?? 'Interactive authentication is required', {
      ...failure?.extra,
      session: challenge.session,
      flows: challenge.flows.map((stages) => ({ stages })),
      params: challenge.params,
      ...(challenge.completed.length > 0 || failure ? { completed: challenge.completed } : {}),
    });
    this.#failed = failure !== undefined;
  }

  /** Without a failure there is no error in the body: clients would show it to their user. */
  override toBody(): Record<string, unknown> {
    return this.#failed ? super.toBody() : { ...this.extra };
  }
}

/** 403: somebody proved to be a user, but not the one who is logged in. The session does not help with that. */
export class OtherUserProved extends MatrixError {
  constructor() {
    super(403, 'M_FORBIDDEN', 'This confirms another user than the one who is logged in');
  }
}
