import { Module } from '@nestjs/common';
import { RoomsModule } from '@rookery/rooms';
import { UsersModule } from '@rookery/users';
import { MessageFollower } from './messages/message-follower.js';
import { MessageIndex } from './messages/message-index.js';
import { MessageIndexEraser } from './messages/message-index-eraser.js';
import { SearchResults } from './messages/search-results.js';
import { MessageSearch } from './messages/message-search.service.js';
import { ResultContexts } from './messages/result-contexts.js';
import { SearchController } from './messages/search.controller.js';
import { UserStatistics } from './statistics/user-statistics.js';
import { UserStatisticsFollower } from './statistics/user-statistics-follower.js';
import { UserDirectoryController } from './users/user-directory.controller.js';
import { UserDirectoryFollower } from './users/user-directory-follower.js';
import { UserDirectoryIndex } from './users/user-directory-index.js';
import { UserDirectory } from './users/user-directory.service.js';

/** The indexes of messages and users, and what is counted; safe in any process. */
@Module({
  imports: [UsersModule, RoomsModule],
  providers: [
    MessageIndex,
    MessageIndexEraser,
    MessageFollower,
    MessageSearch,
    SearchResults,
    ResultContexts,
    UserDirectoryIndex,
    UserDirectoryFollower,
    UserDirectory,
    UserStatistics,
    UserStatisticsFollower,
  ],
  exports: [MessageSearch, UserDirectory],
})
export class SearchModule {}

/** The client API of searches. */
@Module({ imports: [SearchModule], controllers: [SearchController, UserDirectoryController] })
export class SearchHttpModule {}
