import { Module } from '@nestjs/common';
import { UsersModule } from '@rookery/users';
import { ReportLibrary } from './administration/report-library.service.js';
import { RoomLibrary } from './administration/room-library.service.js';
import { RoomCreation } from './creation/room-creation.service.js';
import { AliasClaims } from './directory/alias-claims.js';
import { AliasService } from './directory/alias.service.js';
import { CanonicalAliases } from './directory/canonical-aliases.js';
import { PublicationRules } from './directory/publication-rules.js';
import { RoomAccess } from './history/room-access.js';
import { RedactedContent } from './history/redacted-content.service.js';
import { RoomReadingService } from './history/room-reading.service.js';
import { RoomHooks } from './hooks.js';
import { ComplexRooms } from './membership/complex-rooms.js';
import { IdentityServers } from './membership/identity-servers.js';
import { InvitePolicy } from './membership/invite-policy.js';
import { InviteWishes } from './membership/invite-wishes.js';
import { JoinService } from './membership/join.service.js';
import { MemberProfiles } from './membership/member-profiles.js';
import { MemberEvents } from './membership/member-events.js';
import { MembershipService } from './membership/membership.service.js';
import { OutOfBandMemberships } from './membership/out-of-band.js';
import { Participation } from './sending/participation.js';
import { ProfilePrivacy } from './membership/profile-privacy.js';
import { RemoteRooms } from './remote-rooms.js';
import { RestrictedJoins } from './membership/restricted-joins.js';
import { ThreepidInvites } from './membership/threepid-invites.js';
import { BatchCommitter } from './pipeline/batch-committer.js';
import { DraftBuilder } from './pipeline/draft-builder.js';
import { EventPersister } from './pipeline/event-persister.js';
import { EventStore } from './store/event-store.js';
import { RemoteStager } from './pipeline/remote-stager.js';
import { InboundEvents } from './pipeline/inbound-events.service.js';
import { LocalEventPersister } from './pipeline/local-event-persister.js';
import { LocalStager } from './pipeline/local-stager.js';
import { EventContexts } from './pipeline/event-context.js';
import { PrejoinState } from './pipeline/prejoin-state.js';
import { RoomIds } from './store/room-ids.js';
import { RoomSnapshots } from './room/room-snapshots.js';
import { RoomDirectory } from './directory/directory.service.js';
import { RelationsService } from './relations/relations.service.js';
import { RoomSummaries } from './directory/room-summaries.service.js';
import { SpaceHierarchy } from './directory/space-hierarchy.service.js';
import { EventByTime } from './history/event-by-time.service.js';
import { Reports } from './reports/reports.service.js';
import { RoomUpgrade } from './upgrade/room-upgrade.service.js';
import { RoomBlocking } from './upkeep/room-blocking.service.js';
import { RoomRepair } from './upkeep/room-repair.service.js';
import { RoomTasks } from './upkeep/room-tasks.js';
import { PurgeService } from './upkeep/purge.service.js';
import { RoomShutdown } from './upkeep/room-shutdown.service.js';
import { RemovalRedactions } from './moderation/removal-redactions.service.js';
import { EventSerializer } from './reading/event-serializer.js';
import { MembershipHistory } from './reading/membership-history.js';
import { MembershipReader } from './reading/membership-reader.js';
import { RoomFactsReader } from './reading/room-facts.js';
import { ReaderStates } from './reading/reader-states.js';
import { ReaderWishes } from './reading/reader-wishes.js';
import { RetentionPolicies } from './reading/retention-policies.js';
import { RecentEvents } from './store/recent-events.js';
import { RoomHeroes } from './reading/room-heroes.js';
import { TimelineGaps } from './store/timeline-gaps.js';
import { TimelineReader } from './reading/timeline-reader.js';
import { VisibilityFilter } from './reading/visibility-filter.js';
import { Aggregations } from './reading/aggregations.js';
import { DelayedEvents } from './delayed/delayed-events.service.js';
import { AnsweredTransactions } from './sending/answered-transactions.js';
import { EventCreation } from './sending/event-creation.service.js';
import { RelatedRedactions } from './sending/related-redactions.service.js';
import { UserRedactions } from './moderation/user-redactions.service.js';
import { EventGates } from './pipeline/event-gates.js';
import { PolicyServers } from './pipeline/policy-servers.js';
import { EventGraph } from './servers/event-graph.js';
import { MembershipTemplates } from './servers/membership-templates.js';
import { RoomServers } from './servers/room-servers.js';
import { ServerVisibility } from './servers/server-visibility.js';
import { UserMemberships } from './reading/user-memberships.js';
import { RoomStateReader } from './state/room-state-reader.js';
import { StateGroups } from './state/state-groups-cache.js';
import { StateResolver } from './state/state-resolver.js';

const face = [
  AnsweredTransactions,
  ComplexRooms,
  EventGraph,
  MembershipTemplates,
  RoomServers,
  ServerVisibility,
  RetentionPolicies,
  InvitePolicy,
  InviteWishes,
  OutOfBandMemberships,
  Participation,
  ReaderWishes,
  ReportLibrary,
  RoomBlocking,
  RoomLibrary,
  RoomRepair,
  RoomTasks,
  PurgeService,
  RoomShutdown,
  DelayedEvents,
  RoomDirectory,
  RoomFactsReader,
  RelationsService,
  RoomSummaries,
  SpaceHierarchy,
  EventByTime,
  Reports,
  RoomUpgrade,
  AliasClaims,
  AliasService,
  Aggregations,
  EventCreation,
  RelatedRedactions,
  EventSerializer,
  EventStore,
  InboundEvents,
  JoinService,
  MemberProfiles,
  MemberEvents,
  MembershipHistory,
  MembershipReader,
  MembershipService,
  PrejoinState,
  PublicationRules,
  RemoteRooms,
  RestrictedJoins,
  RoomAccess,
  RoomCreation,
  RoomHeroes,
  RoomHooks,
  RoomIds,
  RoomReadingService,
  RedactedContent,
  RoomStateReader,
  ThreepidInvites,
  TimelineReader,
  UserMemberships,
  UserRedactions,
  VisibilityFilter,
];

const inside = [
  TimelineGaps,
  IdentityServers,
  ReaderStates,
  RecentEvents,
  BatchCommitter,
  CanonicalAliases,
  DraftBuilder,
  EventGates,
  PolicyServers,
  RemoteStager,
  LocalEventPersister,
  LocalStager,
  EventContexts,
  ProfilePrivacy,
  RemovalRedactions,
  RoomSnapshots,
  StateGroups,
  StateResolver,
];

/**
 * Rooms: sending, membership, state, history, aliases. Safe in any process. Needs `Database`, `Clock`, `Ids`, `Config`,
 * `Logger`, `RateLimiter`, `Notifier`, `ModuleDispatcher` and this server's `SigningKey` from the app's global modules.
 */
@Module({
  imports: [UsersModule],
  providers: [...face, ...inside, { provide: EventPersister, useExisting: LocalEventPersister }],
  exports: [...face, EventPersister],
})
export class RoomsModule {}
