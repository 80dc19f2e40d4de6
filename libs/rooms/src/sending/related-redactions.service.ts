import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { type JsonObject, MatrixError } from '@rookery/matrix-types';
import { Config, Logger, type Requester } from '@rookery/platform';
import { EventCreation } from './event-creation.service.js';
import { selectRedactable } from './relations.query.js';

/** Most events that go with one. */
const maxRelated = 1_000;
const maxTypes = 20;
const key = 'org.matrix.msc3912.with_relations';

/** Redacts with an event those that relate to it: its edits, its thread (MSC3912). */
@Injectable()
export class RelatedRedactions {
  readonly #isEnabled: boolean;

  constructor(
    private readonly database: Database,
    private readonly creation: EventCreation,
    private readonly logger: Logger,
    config: Config,
  ) {
    this.#isEnabled = config.get('experimental_features.msc3912_enabled');
  }

  /**
   * The types of relations that a request names, and the content without them; `*` stands for all types.
   * @throws MatrixError 400 `M_INVALID_PARAM`
   */
  optionsIn(body: JsonObject): { readonly types: readonly string[]; readonly content: JsonObject } {
    const { [key]: types, ...content } = body;
    if (!this.#isEnabled || types === undefined) return { types: [], content: body };
    const isList = Array.isArray(types) && types.length <= maxTypes && types.every((type) => typeof type === 'string');
    if (!isList) throw MatrixError.invalidParam(`'${key}' must be a list of at most ${maxTypes} types`);
    return { types: types as string[], content };
  }

  /** Redacts what relates to an event and may be redacted by the requester; what cannot be is left alone. */
  async redact(
    requester: Requester,
    roomId: string,
    eventId: string,
    types: readonly string[],
    content: JsonObject,
  ): Promise<void> {
    if (types.length === 0) return;
    const wanted = types.includes('*') ? undefined : types;
    for (const redacts of await selectRedactable(this.database, roomId, eventId, wanted, maxRelated)) {
      try {
        const request = { roomId, type: 'm.room.redaction', content, redacts };
        // The redaction that they belong to was counted.
        await this.creation.send({ ...requester, rateLimitExempt: true }, request);
      } catch (error) {
        if (!MatrixError.is(error)) throw error;
        this.logger.debug('A related event could not be redacted', { roomId, eventId: redacts, reason: error.message });
      }
    }
  }
}
