/**
 * What one room version does differently, as data. Code takes rules and never compares versions.
 * @spec rooms/v12
 */
export interface RoomVersionRules {
  /** The version's identifier, `1` to `12`. */
  readonly version: string;
  /** Event format: `v1` carries `event_id` and hash pairs; `v3` ids are standard base64 hashes; `v4` URL-safe ones. */
  readonly eventFormat: 'v1' | 'v3' | 'v4';
  /** Where a room's id comes from: the domain that made it, or the create event's hash (12). */
  readonly roomIdFormat: 'domain' | 'createEventHash';
  readonly stateResolution: 'v1' | 'v2' | 'v2.1';
  /** Canonical JSON is enforced: no floats, integers in range (6+). */
  readonly strictCanonicalJson: boolean;
  /** Ids, types and state keys are measured in bytes when an event comes in (11+); before, in code points. */
  readonly strictByteLimits: boolean;
  /** How power levels may be written. */
  readonly powerLevelValues: 'intStringFloat' | 'intString' | 'int';
  /** Join rules that mean something. */
  readonly joinRules: { readonly knock: boolean; readonly restricted: boolean; readonly knockRestricted: boolean };
  /** `m.room.aliases` is an auth rule of its own (1 to 5). */
  readonly aliasesAuthRule: boolean;
  /** `m.room.redaction` is an auth rule of its own (1, 2). */
  readonly redactionAuthRule: boolean;
  /** `content.notifications` is checked like `content.events` (6+). */
  readonly notificationLevelsChecked: boolean;
  /** A key counts only if it was valid when the event was made (5+). */
  readonly keyValidityEnforced: boolean;
  /** `redacts` lies in `content` (11+). */
  readonly redactsInContent: boolean;
  /** The creator is the create event's sender (11+), not `content.creator`. */
  readonly creatorIsSender: boolean;
  /** `content.additional_creators`, and creators above every power level (12+). */
  readonly privilegedCreators: boolean;
  /** The create event is implied by the room id and must not be among the auth events (12+). */
  readonly createEventImplied: boolean;
  /** What redaction keeps. */
  readonly redaction: {
    readonly topLevelKeys: ReadonlySet<string>;
    /** Kept keys of `content` by event type; `true` keeps everything; dotted for nested (`third_party_invite.signed`). */
    readonly contentKeys: ReadonlyMap<string, true | readonly string[]>;
  };
  /** Largest `depth` that the format can hold. */
  readonly maxDepth: number;
}
