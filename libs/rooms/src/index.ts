/** Sending, membership, state, history, aliases, directory. */
export { eventResigning, type ResigningParts } from './administration/event-resigning.update.js';
export type { EventReportRow, UserReportRow } from './administration/report-library.query.js';
export { ReportLibrary } from './administration/report-library.service.js';
export { type RoomOrder, roomOrders, type RoomRow } from './administration/room-library.query.js';
export { type RoomDetails, RoomLibrary } from './administration/room-library.service.js';
export { roomStatsUpdate, userStatsUpdate } from './administration/room-stats.update.js';
export { roomsMigrations } from './migrations/index.js';
export { type EventBatch, type MemberMove, type PushNote, type RoomHook, RoomHooks, type RoomView } from './hooks.js';
export { EventPersister } from './pipeline/event-persister.js';
export type { DraftOrigin, EventDraft, NewRoom } from './model/drafts.js';
export type { RemoteEvent, StateAtEvent, ReceiveVerdict } from './model/remote-events.js';
export { leadingTo } from './pipeline/history-order.js';
export { byAuth, byPrev, restsUpon } from './pipeline/remote-stager.js';
export { InboundEvents } from './pipeline/inbound-events.service.js';
export { withdrawPushNotes } from './store/event-notes.query.js';
export { EventStore } from './store/event-store.js';
export { backwardGaps, type BackwardGap, forgetFailedPulls, noteFailedPulls } from './store/pull-attempts.query.js';
export { type ClientTransaction, isServable, type SentEvent, type StoredEvent } from './model/stored-event.js';
export { type EventFilter, eventFilterSql } from './reading/event-filter.js';
export {
  type JoinedMember,
  type MemberCounts,
  type MembershipChange,
  MembershipReader,
  type RoomMembership,
} from './reading/membership-reader.js';
export { MembershipHistory, type PastMembership, type StayEnd } from './reading/membership-history.js';
export { activityTypes, type RoomFacts, RoomFactsReader } from './reading/room-facts.js';
export { RoomHeroes } from './reading/room-heroes.js';
export {
  delayedTxnPrefix,
  EventSerializer,
  prejoinStateOf,
  type SerializeOptions,
} from './reading/event-serializer.js';
export type { Reader } from './model/requesters.js';
export { VisibilityFilter, type VisibleEvent } from './reading/visibility-filter.js';
export { historyVisibilityIn, type HistoryVisibility } from './reading/visibility-rule.js';
export { Aggregations, type Aggregation } from './reading/aggregations.js';
export { type Relation, relationOf } from './model/relation.js';
export { eventsStream, RoomIds } from './store/room-ids.js';
export { formatRoomToken, parseRoomToken, type RoomPosition } from './reading/room-token.js';
export { type TimelinePage, TimelineReader, type TimelineSlice } from './reading/timeline-reader.js';
export { RoomStateReader, type StateDelta } from './state/room-state-reader.js';
export { filterState, type StateFilter } from './state/state-filter.js';
export { checkCreateRoom } from './creation/create-room.schema.js';
export { type CreatedRoom, type CreateRoomRequest, RoomCreation } from './creation/room-creation.service.js';
export { AliasClaims, type AliasClaimSource } from './directory/alias-claims.js';
export { AliasService } from './directory/alias.service.js';
export { PublicationRules } from './directory/publication-rules.js';
export { filterIn } from './http/history.controller.js';
export { RoomAccess, type RoomReading } from './history/room-access.js';
export { RoomReadingService } from './history/room-reading.service.js';
export { ComplexRooms } from './membership/complex-rooms.js';
export { InvitePolicy } from './membership/invite-policy.js';
export { type InviteJudge, InviteWishes } from './membership/invite-wishes.js';
export { JoinService } from './membership/join.service.js';
export { MemberEvents, type MembershipOptions } from './membership/member-events.js';
export { MemberProfiles } from './membership/member-profiles.js';
export { MembershipService } from './membership/membership.service.js';
export { type MissingEventsSource, type RemoteRoomGateway, RemoteRooms, type ResolvedAlias } from './remote-rooms.js';
export { RestrictedJoins } from './membership/restricted-joins.js';
export type { ThreepidInvite } from './membership/identity-servers.js';
export { type ThreepidInviteOptions, ThreepidInvites } from './membership/threepid-invites.js';
export { PrejoinState, stripped, strippedStateFrom } from './pipeline/prejoin-state.js';
export { DelayedEvents } from './delayed/delayed-events.service.js';
export { EventCreation, type SendRequest } from './sending/event-creation.service.js';
export { type UserRedactionRequest, UserRedactions } from './moderation/user-redactions.service.js';
export { UserMemberships } from './reading/user-memberships.js';
export { originOf, readerOf } from './model/requesters.js';
export { RoomsHttpModule } from './http/rooms-http.module.js';
export { RoomsModule } from './rooms.module.js';
export { RoomsWriterModule } from './rooms-writer.module.js';
export { publicRoom, type PublicRoomsRequest, RoomDirectory } from './directory/directory.service.js';
export { RoomSummaries, type RoomSummary } from './directory/room-summaries.service.js';
export { SpaceHierarchy } from './directory/space-hierarchy.service.js';
export { EventByTime } from './history/event-by-time.service.js';
export { RelationsService } from './relations/relations.service.js';
export { Reports } from './reports/reports.service.js';
export { RoomUpgrade } from './upgrade/room-upgrade.service.js';
export { Participation } from './sending/participation.js';
export { ProfilePropagation } from './accounts/profile-propagation.js';
export { type PurgeLimit, PurgeService } from './upkeep/purge.service.js';
export { AutoAcceptInvites } from './accounts/auto-accept.service.js';
export { ChainCovers } from './upkeep/chain-covers.service.js';
export { DummyEvents } from './upkeep/dummy-events.service.js';
export { ForgottenRooms } from './upkeep/forgotten-rooms.service.js';
export { RetentionPolicies } from './reading/retention-policies.js';
export { PeriodicJob } from './upkeep/periodic-job.js';
export { SpaceReclaimer } from './upkeep/space-reclaimer.js';
export { RedactionCensor } from './upkeep/redaction-censor.js';
export { RoomBlocking } from './upkeep/room-blocking.service.js';
export { type ForwardExtremity, RoomRepair } from './upkeep/room-repair.service.js';
export { RoomShutdown, type ShutdownRequest, type ShutdownResult } from './upkeep/room-shutdown.service.js';
export { serverRequester } from './model/requesters.js';
export type { TaskSearch, TaskStatus } from './upkeep/room-tasks.query.js';
export { type RoomTask, RoomTasks } from './upkeep/room-tasks.js';
export { ReaderWishes } from './reading/reader-wishes.js';
export { Retention } from './upkeep/retention.service.js';
export { OutOfBandMemberships } from './membership/out-of-band.js';
export { EventGraph, type GraphWalk } from './servers/event-graph.js';
export { type MembershipDraft, MembershipTemplates } from './servers/membership-templates.js';
export { RoomServers } from './servers/room-servers.js';
export { type ServerAcl, serverAclOf } from './servers/server-acl.js';
export { ServerVisibility } from './servers/server-visibility.js';
