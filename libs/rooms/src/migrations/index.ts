import type { Migration } from '@rookery/database';
import { delayedServicesSchema, dropDelayedServices } from './delayed-services.migration.js';
import { delayedSchema } from './delayed.migration.js';
import { directorySchema } from './directory.migration.js';
import { eventExpirySchema } from './event-expiry.migration.js';
import { eventJsonSchema } from './event-json.migration.js';
import { eventsSchema } from './events.migration.js';
import { forgottenSchema } from './forgotten.migration.js';
import { generationsSchema } from './generations.migration.js';
import { inviteSendersSchema } from './invite-senders.migration.js';
import { memberDeltasSchema } from './member-deltas.migration.js';
import { partialGroupsSchema } from './partial-groups.migration.js';
import { partialStateSchema } from './partial-state.migration.js';
import { dropProfilesBehind, profilesBehindSchema } from './profiles-behind.migration.js';
import { pushNotesSchema } from './push-notes.migration.js';
import { dropRelationPlaces, relationPlacesSchema } from './relation-places.migration.js';
import { removalRedactionsSchema } from './removal-redactions.migration.js';
import { dropReportsByEvent, reportsByEventSchema } from './reports-by-event.migration.js';
import { slimCost, slimSchema } from './slim.migration.js';
import { dropStateLink, stateLinkSchema } from './state-link.migration.js';
import { stateRowsCost, stateRowsSchema } from './state-rows.migration.js';
import { stateSchema } from './state.migration.js';
import { dropThreadRepliers, threadRepliersSchema } from './thread-repliers.migration.js';
import { timelineGapsSchema } from './timeline-gaps.migration.js';
import { upkeepSchema } from './upkeep.migration.js';

/** The tables of rooms, events and state, in the order in which they are made. */
export const roomsMigrations: readonly Migration[] = [
  { version: 1, name: 'rooms_01_events', up: eventsSchema },
  { version: 1, name: 'rooms_02_state', up: stateSchema },
  { version: 1, name: 'rooms_03_directory', up: directorySchema },
  { version: 1, name: 'rooms_04_upkeep', up: upkeepSchema },
  { version: 1, name: 'rooms_05_delayed', up: delayedSchema },
  {
    version: 1,
    name: 'rooms_06_generations',
    up: generationsSchema,
    cost: [{ tables: ['rooms'], secondsPerMillion: 20 }],
  },
  { version: 1, name: 'rooms_07_forgotten', up: forgottenSchema },
  { version: 1, name: 'rooms_08_slim', up: slimSchema, cost: slimCost },
  { version: 1, name: 'rooms_09_push_notes', up: pushNotesSchema },
  {
    version: 1,
    name: 'rooms_10_event_json',
    up: eventJsonSchema,
    cost: [{ tables: ['event_json', 'events'], secondsPerMillion: 10, rewrites: true }],
  },
  {
    version: 1,
    name: 'rooms_11_invite_senders',
    up: inviteSendersSchema,
    cost: [{ tables: ['room_memberships'], secondsPerMillion: 1 }],
  },
  { version: 1, name: 'rooms_12_timeline_gaps', up: timelineGapsSchema },
  { version: 1, name: 'rooms_13_removal_redactions', up: removalRedactionsSchema },
  { version: 1, name: 'rooms_14_state_rows', up: stateRowsSchema, cost: stateRowsCost },
  {
    version: 1,
    name: 'rooms_15_member_deltas',
    up: memberDeltasSchema,
    cost: [{ tables: ['current_state_delta_stream'], secondsPerMillion: 1 }],
  },
  { version: 1, name: 'rooms_16_event_expiry', up: eventExpirySchema },
  { version: 1, name: 'rooms_17_partial_state', up: partialStateSchema },
  { version: 1, name: 'rooms_18_partial_groups', up: partialGroupsSchema },
  { version: 1, name: 'rooms_19_state_link', up: stateLinkSchema, back: dropStateLink },
  { version: 1, name: 'rooms_20_profiles_behind', up: profilesBehindSchema, back: dropProfilesBehind },
  {
    ...{ version: 1, name: 'rooms_21_reports_by_event', up: reportsByEventSchema, back: dropReportsByEvent },
    cost: [{ tables: ['event_reports'], secondsPerMillion: 1 }],
  },
  {
    ...{ version: 1, name: 'rooms_22_thread_repliers', up: threadRepliersSchema, back: dropThreadRepliers },
    cost: [
      { tables: ['event_relations'], secondsPerMillion: 10 },
      { tables: ['events'], secondsPerMillion: 1 },
    ],
  },
  {
    ...{ version: 1, name: 'rooms_23_relation_places', up: relationPlacesSchema, back: dropRelationPlaces },
    cost: [
      { tables: ['event_relations'], secondsPerMillion: 30, rewrites: true },
      { tables: ['events'], secondsPerMillion: 1 },
    ],
  },
  { version: 1, name: 'rooms_24_delayed_services', up: delayedServicesSchema, back: dropDelayedServices },
];
